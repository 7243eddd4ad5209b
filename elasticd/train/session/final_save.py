"""The end of a job before its training is done: the last snapshot, and the wait until it counts.

The ranks leave after a step that all agreed on, as for any planned change, and take a snapshot
there. Then no rank trains any more, so each can wait until the snapshot is durable, for as long as
the agent allows before it ends the process. The message that a rank leaves says how the save ended.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from elasticd.channel.worker import Left
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import ElasticdError
from elasticd.records.member import Saved

if TYPE_CHECKING:
    from elasticd.keeper.client import Client

__all__ = ["FinalSave"]

POLL_S = 0.5
"""How long one question to the keeper waits; between two it is seen if the save is still wanted."""
REPLY_LIMIT_S = 2.0
"""How long to wait for a keeper that is silent, which has little else to do by then."""

NOT_AGREED = "the ranks did not come to a step that all of them could leave after"
NOT_TAKEN = "no snapshot could be taken"
NOT_IN_TIME = "the upload did not end within --shutdown-timeout"


class SavedRun(Protocol):
    """The part of a `SnapshotTaker` that a final save needs."""

    run: int
    saved_step: int

    @property
    def client(self) -> "Client": ...


class FinalSave:
    """The final save of one process; the thread that hears the agent's order makes it."""

    def __init__(self, within_s: float) -> None:
        """Begin the time limit of the save: `within_s` seconds from now."""
        self.until_s = time.monotonic() + within_s
        self.durable_step = -1
        """The step of the newest checkpoint that is known; -1 if none is."""
        self.why = NOT_AGREED
        """Why the step that the ranks left after is not durable; empty if it is."""

    @property
    def is_overdue(self) -> bool:
        """Return True once the time for the save is over."""
        return time.monotonic() >= self.until_s

    def wait_until_durable(
        self,
        saving: SavedRun,
        *,
        generation: int,
        step: int,
        is_agreed: bool,
        restored_step: int,
        is_wanted: Callable[[], bool],
    ) -> None:
        """Wait until the snapshot of this step is durable, and note how the save ended.

        Args:
            step: the last step that this rank applied.
            is_agreed: whether all ranks left after this very step.
            restored_step: the step of the checkpoint that the run began from; -1 if there is none.
            is_wanted: returns whether the save is still wanted; it is asked between two questions.
        """
        self.durable_step = restored_step
        if is_agreed:
            self.why = NOT_TAKEN
            if saving.saved_step == step:
                snapshot = Snapshot(run=saving.run, generation=generation, step=step)
                self.why = self._wait(saving, snapshot, is_wanted)
        if self.why:
            self.durable_step = max(restored_step, _durable_step(saving))
        else:
            self.durable_step = step

    def left(self, step: int) -> Left:
        """Return the message that this rank leaves; `step` is the last one that it applied."""
        return Left(step=step, durable_step=self.durable_step, why=self.why)

    def sentence(self, step: int) -> str:
        """Return a sentence for people about how the save ended."""
        return Saved(at_step=step, durable_step=self.durable_step, why=self.why).sentence

    def _wait(self, saving: SavedRun, snapshot: Snapshot, is_wanted: Callable[[], bool]) -> str:
        """Wait, and return why the snapshot is not durable; empty if it is."""
        from elasticd.keeper.wire import message as ms

        while is_wanted() and (left_s := self.until_s - time.monotonic()) > 0:
            question = ms.WaitDurable(snapshot=snapshot, timeout_s=min(POLL_S, left_s))
            try:
                answer = saving.client.ask(
                    question, ms.Durability, timeout_s=POLL_S + REPLY_LIMIT_S
                )
            except ElasticdError as exc:
                return str(exc).rstrip(".")
            if answer.is_durable:
                return ""
            if answer.has_failed:
                return answer.why.rstrip(".")
        return NOT_IN_TIME


def _durable_step(saving: SavedRun) -> int:
    from elasticd.keeper.wire import message as ms

    try:
        client = saving.client
        step = client.ask(ms.GetStatus(), ms.Status, timeout_s=REPLY_LIMIT_S).durable_step
        if step >= 0:
            return step
        # Another node's keeper may have committed one: the log knows.
        found = client.ask(ms.Find(), ms.Found, timeout_s=REPLY_LIMIT_S).snapshot
    except ElasticdError:
        return -1
    return found.step if found is not None else -1

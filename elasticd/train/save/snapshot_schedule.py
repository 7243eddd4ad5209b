"""When a snapshot is due. Rank 0 decides at steps that all ranks know, so that all take it.

The clock is rank 0's. At a step where all ranks look, it writes down in the generation's store
whether a snapshot is taken now, and at which step they look next. Between two such steps it costs a
comparison; there are some ten of them between two snapshots that are a minute apart.
"""

import json
import time
from collections.abc import Callable
from typing import Protocol

from elasticd.records.checkpoint import Every
from elasticd.train.interrupt import Interrupted
from elasticd.train.tcp_store import broadcast
from elasticd.train.tcp_store.key_wait import await_keys

__all__ = ["SnapshotSchedule", "next_look"]

AHEAD = 0.5
"""Which part of the remaining time passes before the next look: steps do not all take as long."""
LOOK_LIMIT = 100_000


class ScheduleStore(broadcast.BroadcastStore, Protocol):
    """What is used of a generation's store."""

    def check(self, keys: list[str], /) -> bool: ...


def next_look(every: Every, step: int, left_s: float, step_s: float) -> int:
    """Return the step to look at next; `left_s` is the time until a snapshot is due. Pure."""
    if every.steps:
        return step + every.steps - step % every.steps
    if step_s <= 0:
        return step + 1
    steps = min(left_s / step_s, LOOK_LIMIT / AHEAD)
    return step + max(1, int(steps if steps < 3 else AHEAD * steps))


class SnapshotSchedule:
    """The steps of one generation at which this rank looks whether to take a snapshot."""

    def __init__(
        self,
        store: ScheduleStore,
        every: Every,
        *,
        rank: int,
        size: int,
        step: int,
        saved_at_s: float,
        is_free: Callable[[], bool],
        is_stale: Callable[[], bool],
    ) -> None:
        """`is_free`, which only rank 0 asks: whether there is room for another snapshot."""
        self._store, self._every, self._rank, self._size = store, every, rank, size
        self._is_free, self._is_stale = is_free, is_stale
        self.saved_at_s = saved_at_s
        self._look_at = next_look(every, step, 0.0, 0.0)
        self._looked_s, self._looked_step = time.monotonic(), step

    def is_look(self, step: int) -> bool:
        """Return whether `is_due` asks rank 0, which takes a while."""
        return step >= self._look_at

    def is_due(self, step: int) -> bool:
        """True if all ranks take a snapshot after this step.

        Raises:
            Interrupted: the generation ended meanwhile.
        """
        if not self.is_look(step):
            return False
        key = f"elasticd/save/{step}"

        def wait() -> None:
            if not await_keys(self._store, [key], self._is_stale):
                raise Interrupted

        word = broadcast.broadcast_from_first(
            self._store,
            key,
            rank=self._rank,
            size=self._size,
            decide=lambda: json.dumps(self._decided(step)),
            wait=wait,
        )
        is_due, self._look_at = json.loads(word)
        return bool(is_due)

    def _decided(self, step: int) -> tuple[bool, int]:
        """Whether one is taken after this step, and at which step to look next."""
        now_s = time.monotonic()
        step_s = (now_s - self._looked_s) / max(1, step - self._looked_step)
        self._looked_s, self._looked_step = now_s, step
        left_s = self._every.seconds - (now_s - self.saved_at_s)
        is_time = step % self._every.steps == 0 if self._every.steps else left_s <= 0
        is_due = is_time and self._is_free()
        if is_due:
            self.saved_at_s = now_s
            left_s = self._every.seconds
        return is_due, next_look(self._every, step, max(0.0, left_s), step_s)

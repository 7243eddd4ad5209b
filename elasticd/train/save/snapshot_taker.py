"""Takes snapshots of the state at commits, and hands them to the keeper.

A step pays for a copy of this rank's share, or not even that (`overlapped_copy`); another process
does everything that waits for a network. No failure here stops the training: without memory or
without a keeper the training goes on and says so.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from elasticd.checkpoint.commit.fail_point import fail_point
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import ElasticdError, EnvironmentProblem, Unavailable
from elasticd.keeper.client import Client
from elasticd.keeper.memory.share_record import BUFFERS
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.tree import Tree
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.save.copy_pairs import CopyPairs
from elasticd.train.save.interval_tuner import IntervalTuner
from elasticd.train.save.keeper_buffers import REPLY_LIMIT_S, BufferPlanning, KeeperBuffers
from elasticd.train.save.next_keeper import NextKeeper
from elasticd.train.save.overlapped_copy import CopyChoice, OverlappedCopy
from elasticd.train.save.share_plan import Savable
from elasticd.train.save.snapshot_schedule import SnapshotSchedule
from elasticd.train.save.step_times import StepTimes

__all__ = ["SnapshotTaker"]

FINAL_LIMIT_S = 600.0
"""How long the end of a run waits until its last state is durable."""
FINAL_TRIES = 3
"""How many keepers the last state is given to, if one after the other ends."""
RETRY_S = 10.0
AHEAD_BYTES = 32 << 20
"""Memory for a smaller state is allocated quickly, so it is taken with the first snapshot."""


class SnapshotTaker:
    """Takes the snapshots of a process's whole run; `begin` and `end` bracket each generation."""

    def __init__(
        self,
        connect: Callable[[], Client],
        every: Every,
        mode: str,
        upload_every: Every | None = None,
        *,
        mirror_bytes_per_s: int = 0,
        say: Callable[[str], object] = lambda sentence: sys.stderr.write(f"elasticd: {sentence}\n"),
    ) -> None:
        """`connect` reaches the keeper or raises Unavailable.

        With `upload_every`, snapshots are held in memory as often as they fit (`IntervalTuner`),
        and one is uploaded as often as `upload_every` says. Without it each snapshot is uploaded,
        as often as `every` says.
        """
        self._connect, self._every, self.say = connect, every, say
        self._upload_every, self._mirror_bytes_per_s = upload_every, mirror_bytes_per_s
        self._planning = BufferPlanning(BUFFERS if upload_every is None else BUFFERS + 1)
        self._tuner: IntervalTuner | None = None
        self.spent = SecondsSpent()
        self._client: Client | None = None
        self._retry_s = 0.0
        self._choice = CopyChoice(mode, lambda sentence: self._say_once(sentence))
        self._is_speaker = False
        self._said: set[str] = set()
        self.run = 0
        """0: no generation with checkpoints was formed yet."""
        self.saved_step = -1
        """The step of the newest snapshot that is uploaded."""
        self._newest: Snapshot | None = None  # That snapshot; None if it came from storage.
        self._saved_generation = 0
        self._saved_at_s = time.monotonic()
        self._snapshots = 0
        self._schedule: SnapshotSchedule | None = None
        self._state: Savable | None = None
        self._generation = 0
        self._nodes: Sequence[int] = ()
        self.is_on_one_node = False  # That is only said where the ranks of a world are counted.
        self.mirroring: NextKeeper | None = None
        self._pairs = CopyPairs()
        self._overlap: OverlappedCopy | None = None
        self._steps = StepTimes()
        self._taken_step = -1

    @property
    def interval(self) -> int:
        """Return how many steps lie between two snapshots in memory; 1 if nobody knows."""
        return self._tuner.interval if self._tuner is not None else 1

    @property
    def client(self) -> Client:
        """The connection to the keeper; raises Unavailable if there is none."""
        if self._client is None:
            self._client = self._connect()
            self._planning.forget()
            self._pairs.forget()
        return self._client

    def present_client(self) -> Client:
        """Return a connection that answers: the keeper may have ended since it was asked last.

        Raises: Unavailable: there is no keeper.
        """
        if self._client is not None:
            self._status()
        return self.client

    # --- generations ------------------------------------------------------------------------------

    def begin(
        self,
        store: Any,
        state: Savable,
        is_replicated: Callable[[Tree], Sequence[bool]],
        *,
        rank: int,
        generation: int,
        nodes: Sequence[int],
        is_opened: bool,
        is_stale: Callable[[], bool],
        interval: int = 1,
    ) -> None:
        """Save this generation's commits from now on; `nodes` has the number of each rank's node.

        `interval` is that of snapshots in memory in the generation before, as all ranks know it.
        """
        step = state.position[0]
        self.use(state, is_replicated, rank=rank, generation=generation, nodes=nodes)
        self._steps = StepTimes()
        self.mirroring = NextKeeper(store, rank=rank, generation=generation, nodes=self._nodes)
        if self._upload_every is not None:
            rate = self._mirror_bytes_per_s
            self._tuner = IntervalTuner(self._tuner, interval=interval, mirror_bytes_per_s=rate)
        is_none_saved = self._tuner is not None and self.saved_step < 0
        self._schedule = SnapshotSchedule(
            store,
            self._upload_every or self._every,
            rank=rank,
            size=len(nodes),
            step=step,
            saved_at_s=-inf if is_none_saved else self._saved_at_s,
            is_free=self.is_free,
            is_stale=is_stale,
            tuner=self._tuner,
            is_replicated=self._is_replicated,
        )
        if rank == 0 and not is_opened:
            question = ms.Open(generation=generation, step=step, run=self.run)
            self._try(lambda: self.client.ask(question, ms.Opened, timeout_s=REPLY_LIMIT_S))

    def use(
        self,
        state: Savable,
        is_replicated: Callable[[Tree], Sequence[bool]],
        *,
        rank: int,
        generation: int,
        nodes: Sequence[int],
    ) -> None:
        """Save this state when `take` is called; `is_replicated` as in `SharePlan.of`."""
        self._state = state
        self._is_speaker, self._generation, self._nodes = rank == 0, generation, tuple(nodes)
        self._planning.begin(is_replicated, rank=rank, nodes=self._nodes)
        self._pairs.forget()

    def restored(self, step: int, place: str, *, generation: int) -> None:
        """Take note of the step from which the run goes on, and of the `place` it came from."""
        is_saved = place == "storage" or (place == "memory" and self._upload_every is None)
        self.saved_step = step if is_saved else -1
        self._newest, self._saved_generation = None, generation if place == "storage" else 0

    def has_saved(self, step: int) -> bool:
        """Return whether this generation uploads this step, or restored it from storage."""
        # A snapshot of an earlier one may lack a lost rank's share; new ranks know nothing of it.
        return step <= self.saved_step and self._saved_generation == self._generation

    def end(self) -> None:
        """End the generation; nothing reads the state's memory when this returns."""
        self._schedule = None
        self._finish_copy()
        self._pairs.forget()

    def committed(self, step: int) -> None:
        """Take a snapshot of this commit if one is due; every rank calls it at every commit.

        Raises:
            Interrupted: the generation ended meanwhile.
        """
        self._steps.stepped(self._choice, time.monotonic())
        if self._schedule is None:
            return
        began_s, is_look = self._steps.stepped_s, self._schedule.is_look(step)
        if not self._schedule.is_due(step):
            self._take_memory()
        elif not self.has_saved(step):
            saving = ms.Saving.USUAL
            if self._tuner is not None:
                saving = ms.Saving.PINNED if self._schedule.is_saved else ms.Saving.NONE
            self.take(step, saving=saving)
        self.mirror()
        if is_look:
            self.spent.save_s += time.monotonic() - began_s

    def mirror(self) -> None:
        """Make the next node hold the shares only this node has. All ranks call it; none waits."""
        one, client, planned = self.mirroring, self._client, self._planning.current
        if one and client and planned and planned.parts.is_mirrored:
            self._try(lambda: one.sync(client, planned, self._snapshots))

    def take_last(self, step: int) -> None:
        """Take a snapshot of the generation's last step, whether one is due or not."""
        if self._schedule is not None and not self.has_saved(step):
            self.take(step, is_last=True)

    def finish(self, is_wanted: Callable[[], bool]) -> None:
        """Save the last state of a run; return when it is durable, or `is_wanted` returns False."""
        assert self._state is not None
        step = self._state.position[0]
        self._finish_copy()
        deadline_s = time.monotonic() + FINAL_LIMIT_S
        for _ in range(FINAL_TRIES):
            self._retry_s = 0.0  # There is no later time.
            if self.has_saved(step) or self.take(step, is_last=True):
                self.wait(deadline_s - time.monotonic(), is_wanted)
            # A keeper that is gone took what it had with it, and its agent starts another.
            if self._client is not None or not is_wanted():
                return

    def wait(self, timeout_s: float, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Wait until the newest snapshot is durable; if it fails, say why and return False."""
        if self.saved_step < 0 or self._newest is None:
            return False
        deadline_s = time.monotonic() + timeout_s
        question = ms.WaitDurable(snapshot=self._newest, timeout_s=min(1.0, timeout_s))
        while is_wanted():
            if time.monotonic() >= deadline_s:
                self._say_once("The last state was not durable in time.", is_important=True)
                break
            answer = self._try(lambda: self.client.ask(question, ms.Durability, timeout_s=30.0))
            if answer is None or answer.is_durable:
                return answer is not None
            if answer.has_failed:
                self._say_once(f"The last state was not saved: {answer.why}", is_important=True)
                return False
        return False

    # --- a snapshot -------------------------------------------------------------------------------

    def is_free(self) -> bool:
        """Ask the keeper, on rank 0, whether it can upload: it uploads one snapshot at a time."""
        return (asked := self._status()) is not None and not asked.is_busy

    def _is_replicated(self) -> bool:
        """Ask the keeper if all holders have this rank's last copy, and a new one may come."""
        self._finish_copy()
        asked = self._status()
        return asked is not None and not asked.is_sending and not asked.awaits_upload

    def _status(self) -> ms.Status | None:
        """Ask the keeper for its `Status`; None if it is silent, or memory is being taken."""
        if self._planning.is_taking_memory:
            return None
        asked: ms.Status | None = self._try(
            lambda: self.client.ask(ms.GetStatus(), ms.Status, timeout_s=REPLY_LIMIT_S)
        )
        for note in asked.notes if asked is not None else ():
            self._say_once(note, is_important=True)
        return asked

    def take(
        self, step: int, *, is_last: bool = False, saving: ms.Saving = ms.Saving.USUAL
    ) -> bool:
        """Begin a snapshot, copied at once if `is_last`; return False if this rank takes none."""
        self._finish_copy()
        return self._try(lambda: self._take_now(step, is_last=is_last, saving=saving)) is True

    def _take_now(self, step: int, *, is_last: bool, saving: ms.Saving) -> bool:
        assert self._state is not None
        began_s = time.monotonic()
        client = self.client
        tree = self._state.tree()
        claimed: list[tuple[KeeperBuffers, int]] = []
        before, planned = self._planning.current, self._planning.fitting(client, tree)
        if planned is not before:
            self._pairs.forget()
        if self._tuner is not None and self._is_speaker and not is_last:
            # Before anything is copied: what it will cost is said first.
            self._tuner.use(planned.parts, self._nodes.count(self._nodes[0]))
            self._tuner.say(self.say)
        snapshot = Snapshot(run=self.run, generation=self._generation, step=step)
        for buffers in planned.buffers:
            buffer = buffers.claim(client, snapshot if step > self._taken_step else None)
            if buffer < 0:
                self._say_once("Nothing is saved at the moment: no memory.", is_important=True)
                return False
            claimed.append((buffers, buffer))
        epoch = self._state.position[1]
        is_overlapped = self._choice.is_overlapped and not is_last
        report_copied = partial(self._tell, claimed, snapshot, epoch, tree.skeleton, saving)
        self._taken_step = step
        if saving is not ms.Saving.NONE:
            self.saved_step, self._saved_at_s = step, began_s
            self._newest, self._saved_generation = snapshot, self._generation
        self._snapshots += 1
        fail_point("save.claimed")
        if is_overlapped:
            now, later = self._pairs.of(tree, claimed)
            is_pinned = all(buffers.is_pinned(buffer) for buffers, buffer in claimed)
            self._overlap = OverlappedCopy(later, report_copied, now=now, is_pinned=is_pinned)
        else:
            self._pairs.at_once(tree, claimed).run()
            if is_last:
                self._pairs.forget()
            report_copied(True)
            self._steps.stepped_s = time.monotonic()  # It is no part of the step that begins now.
            self._choice.took(is_overlapped=False, stall_s=self._steps.stepped_s - began_s)
        self._steps.is_costly = is_overlapped
        return True

    def _tell(
        self,
        claimed: Sequence[tuple[KeeperBuffers, int]],
        snapshot: Snapshot,
        epoch: int,
        skeleton: str,
        saving: ms.Saving,
        is_good: bool,
    ) -> None:
        """Hand the buffers to the keeper, in the copying thread if there is one."""
        fail_point("save.copied")
        if not is_good:
            self._choice.broke()
            self.saved_step = min(self.saved_step, snapshot.step - 1)
        for buffers, buffer in claimed:
            question: object = ms.ReleaseBuffer(plan=buffers.id, buffer=buffer)
            if is_good:
                question = ms.SaveSnapshot(
                    plan=buffers.id,
                    buffer=buffer,
                    snapshot=snapshot,
                    epoch=epoch,
                    world_size=len(self._nodes),
                    skeleton=skeleton if buffers.part.share == 0 else "",
                    saving=saving,
                    is_on_one_node=self.is_on_one_node,
                )
            # Its answer is not waited for: the keeper has begun to upload, and is slow to say so.
            self._try(partial(self.client.send, question, timeout_s=REPLY_LIMIT_S))
        fail_point("save.told")

    def _take_memory(self) -> None:
        """Take the memory now, so that it is ready for the generation's first snapshot."""
        if self._planning.is_begun or self._state is None:
            return
        self._planning.is_begun = True
        tree = self._try(self._state.tree)
        if tree is None or sum(memory_of(each).nbytes for each in tree.tensors) < AHEAD_BYTES:
            return
        if (client := self._try(lambda: self.client)) is not None:
            self._planning.take_ahead(client, tree)

    def _finish_copy(self) -> None:
        if self._overlap is not None:
            self._overlap.finish()
            self.spent.save_s += self._overlap.waited_s
            error, self._overlap = self._overlap.error, None
            if error is not None:
                self.saved_step = min(self.saved_step, self._taken_step - 1)
                why = f"A snapshot was not taken: {type(error).__name__}: {error}"
                self._say_once(why, is_important=True)

    def _try(self, ask: Callable[[], Any]) -> Any:
        """Return the answer of `ask`; None if it failed, which is reported once, harmlessly."""
        if self._client is None and time.monotonic() < self._retry_s:
            return None
        try:
            return ask()
        except Unavailable as exc:
            self._client = None
            self.saved_step = -1  # What it had in memory has gone with it.
            self._retry_s = time.monotonic() + RETRY_S
            self._say_once(f"Nothing is saved at the moment: {exc}", is_important=True)
        except EnvironmentProblem as exc:
            self._say_once(f"Nothing is saved at the moment: {exc}", is_important=True)
        except ElasticdError as exc:
            self._say_once(f"A snapshot was not taken: {exc}", is_important=True)
        return None

    def _say_once(self, sentence: str, *, is_important: bool = False) -> None:
        if (self._is_speaker or is_important) and sentence not in self._said:
            self._said.add(sentence)
            self.say(sentence)

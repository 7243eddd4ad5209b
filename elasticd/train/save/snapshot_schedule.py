"""When a snapshot is due. Rank 0 decides at steps that all ranks know, so that all take it.

The clock is rank 0's. At a step where all ranks look, it writes down in the generation's store
whether a snapshot is taken now, and at which step they look next. Between two such steps a commit
costs one comparison; there are some ten of them between two snapshots that are a minute apart.
"""

import json
import time
from collections.abc import Callable
from typing import Protocol

from elasticd.records.checkpoint import Every
from elasticd.train.interrupt import Interrupted
from elasticd.train.save.interval_tuner import IntervalTuner
from elasticd.train.tcp_store import broadcast
from elasticd.train.tcp_store.key_wait import await_keys
from elasticd.train.tcp_store.unanimity import is_unanimous

__all__ = ["SnapshotSchedule", "next_look"]

AHEAD = 0.5
"""Which part of the remaining time passes before the next look: steps do not all take as long."""
LOOK_LIMIT = 100_000


class ScheduleStore(broadcast.BroadcastStore, Protocol):
    """The methods of a generation's store that the schedule uses."""

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
        tuner: IntervalTuner | None = None,
        is_replicated: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begin at `step`; only rank 0 calls `is_free`, which says if another snapshot has room.

        With a `tuner`, snapshots are held in memory as often as it says, and `every` is the time
        between two uploads. `is_replicated` says for this rank whether all keepers that are to
        hold the snapshot before have it.
        """
        self._tuner, self._is_replicated = tuner, is_replicated
        self._store, self._every, self._rank, self._size = store, every, rank, size
        self._is_free, self._is_stale = is_free, is_stale
        self.saved_at_s = saved_at_s
        self.is_saved = False
        """Whether the newest snapshot that was due is uploaded."""
        self._look_at = next_look(every, step, 0.0, 0.0)
        self._looked_s, self._looked_step = time.monotonic(), step

    def is_look(self, step: int) -> bool:
        """Return whether `is_due` asks rank 0 at this step, which takes a while."""
        return step >= self._look_at

    def is_due(self, step: int) -> bool:
        """Return True if all ranks take a snapshot after this step; `is_saved`: if they upload it.

        Raises:
            Interrupted: the generation ended meanwhile.
        """
        if self._tuner is not None:
            self._tuner.stepped(step, time.monotonic())
        if not self.is_look(step):
            return False
        key = f"elasticd/save/{step}"
        is_replicated = self._tuner is None or self._is_replicated_everywhere(key)

        def wait() -> None:
            if not await_keys(self._store, [key], self._is_stale):
                raise Interrupted

        word = broadcast.broadcast_from_first(
            self._store,
            key,
            rank=self._rank,
            size=self._size,
            decide=lambda: json.dumps(self._decided(step, is_replicated)),
            wait=wait,
        )
        is_due, self.is_saved, self._look_at, interval = json.loads(word)
        if self._tuner is not None and self._rank:
            self._tuner.follow(interval)
        return bool(is_due)

    def _is_replicated_everywhere(self, key: str) -> bool:
        """Return on rank 0 whether all holders of the snapshot before have it whole."""
        found = is_unanimous(
            self._store,
            f"{key}/whole",
            rank=self._rank,
            size=self._size,
            agrees=self._is_replicated(),
            is_stale=self._is_stale,
        )
        if found is None:
            raise Interrupted
        return found

    def _decided(self, step: int, is_replicated: bool) -> tuple[bool, bool, int, int]:
        """Return whether a snapshot is taken after this step, whether it is uploaded, the step at
        which to look next, and the interval of snapshots in memory.
        """
        now_s = time.monotonic()
        if self._tuner is not None:
            if not self._tuner.is_due(step, is_replicated=is_replicated, now_s=now_s):
                return False, False, self._tuner.look_at(step), self._tuner.interval
            is_saved = now_s - self.saved_at_s >= self._every.seconds and self._is_free()
            if is_saved:
                self.saved_at_s = now_s
            return True, is_saved, step + 1, self._tuner.interval
        step_s = (now_s - self._looked_s) / max(1, step - self._looked_step)
        self._looked_s, self._looked_step = now_s, step
        left_s = self._every.seconds - (now_s - self.saved_at_s)
        is_time = step % self._every.steps == 0 if self._every.steps else left_s <= 0
        is_due = is_time and self._is_free()
        if is_due:
            self.saved_at_s = now_s
            left_s = self._every.seconds
        return is_due, is_due, next_look(self._every, step, max(0.0, left_s), step_s), 1

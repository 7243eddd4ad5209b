"""Which workers make no progress, and which of them others wait for. Pure.

That no number of a worker's beats changes says little: an evaluation, a big save and a first
compilation look the same. So the limit is generous (`progress_timeout_s`); it is short only where
another rank waits for this one in a collective, in the middle of an ordinary step.

Whether others wait can be seen here for ranks of this node. Where all of them stand still at the
same place, the one that they wait for may be on another node: after the same short time each node
says so in its member record, and the proposers compare (`elasticd/rendezvous/next_world/hang.py`).
The rank of this node that is furthest behind may wait in a collective itself. Then it is not to
blame: the other ranks of this node have begun that collective too, so it waits for a rank of
another node, or for the network. In this case all ranks of this node are reported as waiting.

A worker that goes on takes that back; it is then not suspected again for a minute, so that
evaluations for which others wait cost etcd two writes a minute and node at most.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from elasticd.records.ids import Generation
from elasticd.records.member import StallLimit
from elasticd_agent.liveness.observed_worker import ObservedWorker

__all__ = ["Resumed", "Stalled", "stalled"]

SHORT_LIMIT_S, SHORT_LIMIT_STEPS, SHORT_LIMIT_MARGIN_S = 5.0, 20.0, 2.0
OWN_RECORD_FACTOR = 2.0
"""The short limit is at least this many times the longest time that the worker has ever taken
within a step (it may compile)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """Its numbers stand still, and no worker of its job here is further behind."""

    pid: int
    generation: Generation
    step: int
    sequence: int
    since_s: float
    """How many seconds it has stood still."""
    limit: StallLimit
    is_in_step: bool = False
    is_in_collective: bool = False
    is_waited_for: bool = False
    """True if other workers here are further and wait for it."""
    has_returned: bool = False
    """True if it has returned from `train`, and the others have not."""

    @property
    def why(self) -> str:
        """Return a sentence on what is wrong with the worker, and which workers wait for it."""
        if self.has_returned:
            return "It returned from train."
        return f"No progress for {self.since_s:.0f} s, while others waited for it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """It was reported as stalled, and makes progress again."""

    pid: int


def stalled(world: Sequence[ObservedWorker], now_s: float) -> list[Stalled | Resumed]:
    """Return the workers, among comparable ones, that stand still and are last.

    Each is named once for each limit that it passes, and once when it goes on.
    """
    early = _returned_early(world, now_s)
    if early is not None:
        return list(early)
    if any(w.beat is not None and (w.beat.is_paused or w.beat.has_returned) for w in world):
        # The others may have to wait for it, for as long as it pauses; and what one does after
        # the last step, while others are done, may take its time.
        for worker in world:
            worker.moves(now_s)
        return _resumed(world)
    found: list[Stalled | Resumed] = _resumed(world)
    last = min(worker.place for worker in world)
    do_all_wait = all(_is_in_collective(worker) for worker in world if worker.place == last)
    for worker in world:
        if (worker.place > last and not do_all_wait) or worker.is_told_frozen:
            continue
        waiting = [o for o in world if o.place > last and not o.is_told_frozen]
        if do_all_wait or _is_in_collective(worker):
            waiting = []
        limit = _limit_passed(worker, waiting, now_s)
        if limit is None:
            continue
        # If others here wait for this worker, it does not matter which limit it passed.
        told = StallLimit.PROGRESS if waiting else limit
        if not told.is_beyond(worker.told):
            continue
        worker.told = told
        found.append(_verdict(worker, now_s - worker.moved_s, limit, is_waited_for=bool(waiting)))
    return found


def _is_in_collective(worker: ObservedWorker) -> bool:
    return worker.beat is not None and worker.beat.is_in_collective


def _resumed(world: Sequence[ObservedWorker]) -> list[Stalled | Resumed]:
    found: list[Stalled | Resumed] = []
    for worker in world:
        if worker.has_resumed:
            worker.has_resumed = False
            found.append(Resumed(pid=worker.pid))
    return found


def _limit_passed(
    worker: ObservedWorker, waiting: Sequence[ObservedWorker], now_s: float
) -> StallLimit | None:
    """Return the longest limit that a worker passed; `waiting` are the workers here that wait for
    it.
    """
    beat = worker.beat
    assert beat is not None
    idle_s = now_s - worker.moved_s
    if idle_s >= worker.limit_s:
        return StallLimit.PROGRESS
    beats = [beat, *(other.beat for other in waiting if other.beat is not None)]
    step_s = max((b.step_s for b in beats if math.isfinite(b.step_s)), default=0.0)
    if not worker.has_stepped or step_s <= 0.0 or math.isinf(worker.limit_s):
        return None
    usual_s = max(SHORT_LIMIT_S, SHORT_LIMIT_STEPS * step_s + SHORT_LIMIT_MARGIN_S)
    own_s = max(usual_s, OWN_RECORD_FACTOR * worker.record_s)
    if waiting:
        # Nobody commits a step that it did not take part in: behind in steps is within one.
        is_in_step = beat.is_in_step or any(b.step > beat.step for b in beats)
        waited_s = max(now_s - other.moved_s for other in waiting)
        return StallLimit.RECORD if is_in_step and min(idle_s, waited_s) >= own_s else None
    if idle_s < usual_s or now_s < worker.hushed_until_s:
        return None
    return StallLimit.RECORD if idle_s >= own_s else StallLimit.STEP


def _verdict(
    worker: ObservedWorker, idle_s: float, limit: StallLimit, *, is_waited_for: bool
) -> Stalled:
    beat = worker.beat
    assert beat is not None
    return Stalled(
        pid=worker.pid,
        generation=worker.formed,
        step=beat.step,
        sequence=beat.sequence,
        since_s=idle_s,
        limit=limit,
        is_in_step=beat.is_in_step,
        is_in_collective=beat.is_in_collective,
        is_waited_for=is_waited_for,
    )


def _returned_early(world: Sequence[ObservedWorker], now_s: float) -> list[Stalled] | None:
    """Return the worker that left `train` while others are in a collective; None if none did."""
    returned = [w for w in world if w.beat is not None and w.beat.has_returned]
    if not returned:
        return None
    first = min(returned, key=lambda worker: worker.place)
    waiting = [w for w in world if w not in returned and w.place > first.place]
    if not waiting:
        return None
    waited_s = max(now_s - worker.moved_s for worker in waiting)
    if waited_s < SHORT_LIMIT_S or first.told is StallLimit.PROGRESS:
        return []
    first.told = StallLimit.PROGRESS
    verdict = _verdict(first, waited_s, StallLimit.PROGRESS, is_waited_for=True)
    return [replace(verdict, has_returned=True)]

"""Measures a job between two evaluations, from its own records: steps, changes, waits for data.

`elasticd.autoscale.curve.window` defines a window. This module finds the records for a window, the
cost of each change of size, and the time in which the job waited for data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.autoscale.curve.window import Measuring, measured, reading_of
from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.autoscale.loop.job_watch import JobFacts
from elasticd.goodput.cause import TimeCause
from elasticd.goodput.formula import causes_of, total
from elasticd.records.account.incident import Incident
from elasticd.records.account.time_spent import JobProgress, TimeSpent
from elasticd.records.ids import Generation
from elasticd.records.reason import Reason

__all__ = ["Measured", "Measurement", "slot_seconds", "used_node_hours"]

SHARE_S = 15.0
"""The least time of each slot, in seconds, for the share of a cause, since agents report seldom."""
UNTOLD_S = 45.0
"""The age of a world, in seconds, at which its first step is not waited for any more: such a world
may have formed before its scripts called `elasticd.run`, when nodes joined while a job started."""
RESIZES = frozenset({Reason.SCALED, Reason.JOINED})
_NO_COST = frozenset(
    {
        TimeCause.TRAIN,
        TimeCause.SPARE,
        TimeCause.PAUSE,
        TimeCause.WAIT,
        TimeCause.SUSPENDED,
        TimeCause.DATA,
        TimeCause.SAVE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements since the last evaluation."""

    windows: tuple[MeasuredWindow, ...] = ()
    has_full_window: bool = False
    data_share: float = 0.0
    change_cost_s: tuple[float, ...] = ()


class Measurement:
    """The measurement of one job in one term.

    It begins without state: measurements of an earlier term are left out.
    """

    def __init__(self) -> None:
        self._generation: Generation | None = None
        self._measuring = Measuring()
        self._told = Generation(0)
        """The newest generation whose cost was reported, or was known already."""
        self._sums: Mapping[TimeCause, float] | None = None
        self._share = 0.0

    def take(self, facts: JobFacts, window_s: float) -> Measured:
        """Measure the present records; a window is at least `window_s` long."""
        if self._generation is None:
            # The earlier leader has reported the change with which this generation began.
            self._told = facts.generation
        if facts.generation != self._generation:
            self._generation, self._measuring = facts.generation, Measuring()
        windows = self._windows(facts, window_s)
        return Measured(
            windows=windows,
            has_full_window=self._measuring.windows > 0,
            data_share=self._data_share(facts),
            change_cost_s=self._costs(facts),
        )

    # --- private ------------------------------------------------------------------------------

    def _windows(self, facts: JobFacts, window_s: float) -> tuple[MeasuredWindow, ...]:
        progress, world = facts.progress, facts.world
        if progress is None or world is None or not progress.has_steps:
            return ()
        first_step = _first_step(facts)
        if progress.generation != world.generation:
            return ()
        is_told_later = world.reason is not Reason.FIRST_WORLD and progress.generation_s < UNTOLD_S
        if first_step is None and facts.status.is_in_process and is_told_later:
            return ()  # Records from before the first step are the earlier world's.
        spent = _account_of_rank_0(facts, progress)
        reading = reading_of(progress, spent, len(world.nodes), first_step)
        self._measuring, window = measured(self._measuring, reading, window_s=window_s)
        return (window,) if window is not None else ()

    def _data_share(self, facts: JobFacts) -> float:
        sums = _sums(facts)
        before = self._sums
        if before is None or any(sums.get(cause, 0.0) < s - 1.0 for cause, s in before.items()):
            self._sums = sums
            return self._share
        slots = facts.world.size if facts.world is not None else 1
        used_s = _used_s(sums) - _used_s(before)
        if used_s >= SHARE_S * slots:
            data_s = sums.get(TimeCause.DATA, 0.0) - before.get(TimeCause.DATA, 0.0)
            self._share = max(0.0, min(1.0, data_s / used_s))
            self._sums = sums
        return self._share

    def _costs(self, facts: JobFacts) -> tuple[float, ...]:
        world = facts.world
        if world is None or world.generation <= self._told:
            return ()
        if world.reason not in RESIZES:
            self._told = world.generation
            return ()
        incidents_by_node = {each.node: each for each in facts.incidents if not each.is_announced}
        stayed = [node for node in world.nodes if node.since < world.generation]
        if not stayed or any(node.node not in incidents_by_node for node in stayed):
            return ()
        found = [incidents_by_node[node.node] for node in stayed]
        if facts.status.is_in_process and any("start" in each.phases_s for each in found):
            # The generation began before its scripts had called `elasticd.run`: their imports are
            # no cost of a change of size.
            self._told = world.generation
            return ()
        has_steps = facts.progress is not None and facts.progress.has_steps
        if has_steps and all(each.step is None for each in found):
            return ()  # A script of restart mode reports its cost later.
        self._told = world.generation
        costs = [
            _cost_s(incidents_by_node[node.node]) / len(node.workers)
            for node in stayed
            if node.workers
        ]
        return (round(max(costs), 3),) if costs else ()


def slot_seconds(facts: JobFacts) -> float:
    """Return the slot-seconds that the job has used until now, without spares."""
    return _used_s(_sums(facts))


def used_node_hours(facts: JobFacts) -> float:
    """Return the used slot-seconds as hours of whole nodes."""
    world = facts.world
    per_node = float(facts.spec.workers_per_node)
    if not per_node and world is not None and world.nodes:
        per_node = world.size / len(world.nodes)
    return slot_seconds(facts) / max(1.0, per_node) / 3600.0


def _first_step(facts: JobFacts) -> int | None:
    """Return the first step of the newest world; None if there is none, or not reported yet."""
    steps = [each.step for each in facts.incidents if each.step is not None]
    return min(steps) if steps else None


def _account_of_rank_0(facts: JobFacts, progress: JobProgress) -> TimeSpent | None:
    """Return the account of the node of rank 0, if it is from the same time."""
    assert facts.world is not None
    node = facts.world.nodes[0].node
    found = [each for each in facts.spent if each.node == node and not each.is_concluded]
    return max(
        found,
        key=lambda each: (
            each.generation == progress.generation and each.generation_s == progress.generation_s
        ),
        default=None,
    )


def _sums(facts: JobFacts) -> Mapping[TimeCause, float]:
    parts = [each.seconds for each in facts.spent]
    if facts.progress is not None:
        parts.append(facts.progress.seconds)
    return total(map(causes_of, parts))


def _used_s(sums: Mapping[TimeCause, float]) -> float:
    return sum(sums.values()) - sums.get(TimeCause.SPARE, 0.0)


def _cost_s(incident: Incident) -> float:
    if incident.spent_s:
        spent = causes_of(incident.spent_s)
        return sum(seconds for cause, seconds in spent.items() if cause not in _NO_COST)
    return sum(incident.phases_s.values())

"""How long the job stood still after each fault, and what share of its time was useful. Pure.

The recovery of a fault ends with the first *new* committed step: one of which every rank took its
share after the fault, and that every rank applied. A step that was in flight does not count.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from statistics import median

from chaos.history.lineage import Lineage, Round
from chaos.history.records import Applied, History, Struck

__all__ = [
    "Commit",
    "Figures",
    "Recovery",
    "commits",
    "figures",
    "full_goodput",
    "goodput",
    "recoveries",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A step that all ranks of its generation applied."""

    taken_s: float
    """When the first rank had its share."""
    at_s: float
    """When the last rank had applied it."""
    kept_s: float
    """When the last of those ranks called `commit()` that went on to the next generation: one that
    was stopped, or cut off, may write it down seconds after the others went on without it."""
    step: int
    generation: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The recovery after one fault; a time is None if its end was not seen."""

    fault: Struck
    recover_s: float | None
    """The time from the fault to the next committed step at any size."""
    full_s: float | None
    """The time from the fault, or from its later undoing, to the next commit at full size."""
    stood_s: float | None
    """The time between the last commit before the recovery and the next one: what the job lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    count: int
    p50_s: float
    p99_s: float
    max_s: float


def commits(rounds: Sequence[Round]) -> list[Commit]:
    """List the commits of all generations by the time at which their step began."""
    found = []
    for each, after in zip_longest(rounds, rounds[1:]):
        kept = (
            {entered.process for entered in after.entered.values()} if after is not None else set()
        )
        for step, applied in each.applied.items():
            took = each.took.get(step, {})
            if each.is_committed(step) and len(took) == each.size:
                at_s = max(_applied_s(one) for one in applied.values())
                # What elasticd counts up to: a rank writes it down some milliseconds later.
                calls_s = {one.process: one.called_s or one.at_s for one in applied.values()}
                found.append(
                    Commit(
                        taken_s=min(one.at_s for one in took.values()),
                        at_s=at_s,
                        kept_s=max(
                            (call_s for process, call_s in calls_s.items() if process in kept),
                            default=max(calls_s.values()),
                        ),
                        step=step,
                        generation=each.generation,
                        size=each.size,
                    )
                )
    return sorted(found, key=lambda commit: commit.taken_s)


def _applied_s(applied: Applied) -> float:
    """Return when a rank had applied a step.

    One that waited in `commit()` for a rank that was cut off, until the next generation called it
    away, writes the step down only then.
    """
    return applied.called_s if applied.is_late else applied.at_s


def recoveries(history: History, found: Sequence[Commit]) -> list[Recovery]:
    """Look up what came after each fault."""
    full_size = history.began.full_size if history.began is not None else 0
    undone = {record.number: record.at_s for record in history.undone}
    any_size = _First(found)
    full = _First([commit for commit in found if commit.size == full_size])
    ends_s = sorted(commit.at_s for commit in found)
    made = []
    for fault in history.struck:
        next_s = any_size.after(fault.at_s)
        from_s = max(fault.at_s, undone.get(fault.number, 0.0))
        whole_s = full.after(from_s)
        before = bisect_left(ends_s, next_s if next_s is not None else fault.at_s)
        last_s = ends_s[before - 1] if before else fault.at_s
        made.append(
            Recovery(
                fault=fault,
                recover_s=None if next_s is None else next_s - fault.at_s,
                full_s=None if whole_s is None else whole_s - from_s,
                stood_s=None if next_s is None else next_s - last_s,
            )
        )
    return made


def figures(values: Sequence[float]) -> Figures | None:
    """Nearest-rank percentiles; None without any value."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Figures(count=len(ordered), p50_s=at(0.5), p99_s=at(0.99), max_s=ordered[-1])


def goodput(lineage: Lineage, found: Sequence[Commit]) -> float | None:
    """Return the share of the time that a calm job of the sizes then live needs for these steps.

    The pace of a size is the median distance of two commits of one generation at that size.
    """
    return _share(found, Counter(each.size for each in lineage.steps.values()))


def full_goodput(lineage: Lineage, found: Sequence[Commit], full_size: int) -> float | None:
    """Return the share of the time that a calm job of full size needs for as much work: a step of
    half of the ranks does half of it.
    """
    ranks = sum(each.size for each in lineage.steps.values())
    return _share(found, {full_size: ranks / full_size}) if full_size else None


def _share(found: Sequence[Commit], steps: Mapping[int, float]) -> float | None:
    """Return the share of the time that so many calm steps of each size take."""
    paces: dict[int, list[float]] = {}
    for earlier, later in pairwise(found):
        if earlier.generation == later.generation:
            paces.setdefault(later.size, []).append(later.at_s - earlier.at_s)
    if not paces:
        return None
    calm_s = {size: median(distances) for size, distances in paces.items()}
    # A size that never made two steps in a row: as good as the nearest one.
    needed_s = sum(
        calm_s[min(calm_s, key=lambda known: abs(known - size))] * count
        for size, count in steps.items()
    )
    window_s = max(commit.at_s for commit in found) - min(commit.taken_s for commit in found)
    return needed_s / window_s if window_s > 0 else None


class _First:
    """Finds the earliest end among the commits that began at a time or later."""

    def __init__(self, found: Sequence[Commit]) -> None:
        self._begins = [commit.taken_s for commit in found]
        self._ends = [commit.at_s for commit in found]
        for number in range(len(self._ends) - 2, -1, -1):
            self._ends[number] = min(self._ends[number], self._ends[number + 1])

    def after(self, at_s: float) -> float | None:
        number = bisect_left(self._begins, at_s)
        return self._ends[number] if number < len(self._ends) else None

"""Finds stragglers: nodes for which all others wait, from each node's report of its waits. Pure.

Step times show no straggler, since a collective makes them equal on all ranks. But the last rank
that enters a collective waits only for the transfer, and every other rank waits for the last rank
too. So if a node's waits are shorter than those of the others by a large part of a step, the others
wait for this node, and the difference is its cost.

Three rules prevent a false verdict because of noise. A median over dozens of steps counts, so
single slow steps do not matter. The waits must be apart, not only their medians: two thirds of the
node's waits must be below two thirds of the others'. The difference must last: for a short time if
the difference is much larger than the spread of the waits, for a long time if it is not, for
instance on a machine whose cores other programs use too. Rejected: a z-score over the nodes, which
needs many nodes, and finds no straggler among two.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.records.account.late import NodeWait
from elasticd.records.ids import NodeId

__all__ = ["LateJudgement", "Lateness", "judged", "lateness"]

LATE_SHARE = 0.10
"""The least difference, as a share of a step. With a smaller one, a person would do nothing about
it."""
WELL_SHARE = 0.05
"""A late node counts as well again below this share; between the two limits the verdict stays."""
LEAST_S = 0.002
"""A difference below this many seconds is noise of the machine, for any duration of a step."""
CLEAR_SPREADS = 2.0
"""A difference of this many spreads of the waits is not noise."""
HOLD_STEPS, HOLD_LEAST_S = 8, 0.5
"""The time for which a difference must last, in steps and in seconds. A median over 50 steps
changes with the 26th, and a node reports it some steps later (`wait_report`): 60 in all."""
NOISY_HOLDS = 20
"""A difference that may be noise must last this many times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How much later a node is than the others, and the cost of that."""

    share: float
    """The additional wait of the others, as a share of a step."""
    ratio: float
    """The factor between the duration of its steps and that of the others' steps."""
    cost_nodes: float
    """The cost of all others' waits for the node, in nodes."""
    is_apart: bool
    """True if the node's waits hardly overlap with the others'."""
    is_clear: bool
    """True if the difference is much larger than the spread of the waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    is_late: bool
    turned_s: float | None = None
    """The time in seconds since which the opposite verdict holds."""
    lateness: Lateness | None = None
    """The lateness at the last verdict that the node is late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateJudgement:
    """The verdicts about the nodes of a world. Immutable: `judged` returns the next one."""

    cases: Mapping[NodeId, _Case] = field(default_factory=dict)
    is_complete: bool = False
    """True if every node of the world reported its waits in this generation, or if there is only
    one node, for which nobody waits."""
    wake_s: float | None = None
    """The time for the next judgement even without a new report; None if none is due."""
    step_s: float = 0.0
    """The median duration of a step over the nodes; 0 if not known."""

    @property
    def late(self) -> Mapping[NodeId, Lateness]:
        """Return the nodes for which all others wait now, and by how much."""
        return {
            node: case.lateness
            for node, case in self.cases.items()
            if case.is_late and case.lateness is not None
        }


def lateness(node: NodeId, waits: Mapping[NodeId, NodeWait]) -> Lateness | None:
    """Compare a node with the others; None if its waits, or all others', are unknown."""
    own = waits.get(node)
    others = [wait for name, wait in waits.items() if name != node and wait.steps]
    if own is None or not own.steps or not others:
        return None
    step_s = _median([own.step_s, *(other.step_s for other in others)])
    gap_s = _median(other.wait_s for other in others) - own.wait_s
    spread_s = max(own.high_s - own.low_s, _median(o.high_s - o.low_s for o in others))
    if step_s <= 0.0:
        return None
    share = min(0.99, max(0.0, gap_s) / step_s)
    cost_s = sum(max(0.0, other.wait_s - own.wait_s) for other in others)
    return Lateness(
        share=share if gap_s >= LEAST_S else 0.0,
        ratio=share / (1.0 - share),
        cost_nodes=cost_s / step_s,
        is_apart=own.high_s < _low_median(other.low_s for other in others),
        is_clear=gap_s > CLEAR_SPREADS * spread_s,
    )


def judged(
    before: LateJudgement, waits: Mapping[NodeId, NodeWait | None], now_s: float
) -> LateJudgement:
    """Return the verdicts about the nodes, from their present reports (None if one is missing).

    `now_s` is the clock of the judging node. For a node without known waits, the last verdict
    stays; a node that has left the world is removed.
    """
    if len(waits) == 1:
        return LateJudgement(is_complete=True)
    told = {node: wait for node, wait in waits.items() if wait is not None}
    step_s = _median([wait.step_s for wait in told.values() if wait.steps] or [0.0])
    hold_s = max(HOLD_LEAST_S, HOLD_STEPS * step_s)
    cases: dict[NodeId, _Case] = {}
    wakes: list[float] = []
    for node in waits:
        case = before.cases.get(node, _Case(is_late=False))
        found = lateness(node, told)
        if found is None:
            cases[node] = replace(case, turned_s=None)
            continue
        is_sure = case.is_late or found.is_clear
        long_s = hold_s if is_sure else NOISY_HOLDS * hold_s
        cases[node] = case = _turned(case, found, now_s, long_s)
        if case.turned_s is not None:
            wakes.append(case.turned_s + long_s)
    is_complete = len(told) == len(waits) > 1 and all(wait.steps for wait in told.values())
    return LateJudgement(
        cases=cases, is_complete=is_complete, wake_s=min(wakes, default=None), step_s=step_s
    )


def _turned(case: _Case, found: Lateness, now_s: float, hold_s: float) -> _Case:
    if case.is_late:
        looks_late = found.share >= WELL_SHARE
    else:
        looks_late = found.share > LATE_SHARE and found.is_apart
    if looks_late == case.is_late:
        return _Case(is_late=case.is_late, lateness=found if looks_late else None)
    turned_s = now_s if case.turned_s is None else case.turned_s
    if now_s < turned_s + hold_s:
        return replace(case, turned_s=turned_s)
    return _Case(is_late=looks_late, lateness=found if looks_late else None)


def _median(values: Iterable[float]) -> float:
    """Return the median of at least one number.

    `statistics` would load decimal numbers into each agent.
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2.0


def _low_median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]

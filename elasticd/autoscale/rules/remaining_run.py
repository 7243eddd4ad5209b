"""Estimates the whole rest of a job at one size, for the deadline and the budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elasticd.autoscale.curve.cost import change_cost_s
from elasticd.autoscale.curve.estimate import error_share, measured_sizes, steps
from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.explain.quantity import counted
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.size_range import size_range, sizes_between
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Candidate, Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.policy import Policy

__all__ = ["Remaining", "candidates_near", "held", "remaining"]

CANDIDATES_LIMIT = 16
"""The number of candidates that a decision lists, since the decision is a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The estimate for all steps that are left, at one size."""

    nodes: int
    seconds: float
    """The seconds for these steps, including the change to this size."""
    error_s: float
    """The error in seconds: one standard deviation."""
    steps_per_s: float
    is_measured: bool

    @property
    def surely_s(self) -> float:
        """Return the seconds with their error added."""
        return self.seconds + self.error_s

    @property
    def node_hours(self) -> float:
        return self.nodes * self.seconds / 3600.0

    @property
    def surely_node_hours(self) -> float:
        return self.nodes * self.surely_s / 3600.0


def held(rule: Rule, total_steps: int, curve: Curve, seen: Observation) -> Proposal | None:
    """Return why the rest of the job cannot be estimated; None if it can."""
    if seen.nodes <= 0:
        why = "No world trains, so no step can be measured."
        return Proposal(rule=rule, nodes=None, why=why, held=HoldReason.NOT_RUNNING)
    if seen.step <= 0:
        why = f"The job has reported no steps, and its {rule} goes by them."
        return Proposal(rule=rule, nodes=None, why=why, held=HoldReason.NO_STEPS)
    if seen.step >= total_steps:
        return Proposal(rule=rule, nodes=None, why=f"All {total_steps} steps are made.")
    if all(size.nodes != seen.nodes for size in measured_sizes(curve)):
        why = (
            f"The steps of {counted(seen.nodes, 'node')} have not been measured for a whole "
            "window yet."
        )
        return Proposal(rule=rule, nodes=None, why=why, held=HoldReason.NO_WINDOW)
    return None


def remaining(
    total_steps: int, policy: Policy, curve: Curve, seen: Observation
) -> tuple[Remaining, ...]:
    """Return the estimate for each size that is considered, in the order of their nodes.

    These are the sizes of `sizes_between`, the measured ones and the present one; sizes that were
    taken back are left out. The curve must know the present size (`held`).
    """
    low, high = size_range(policy, seen)
    left = total_steps - seen.step
    cost_s, _ = change_cost_s(curve, is_in_process=seen.is_in_process)
    known = (size.nodes for size in measured_sizes(curve) if low <= size.nodes <= high)
    allowed = {*sizes_between(low, high), *known}.difference(curve.refused)
    found = []
    for step in steps(curve, sorted(allowed | {seen.nodes})):
        seconds = left * step.seconds
        error_s = seconds * error_share(curve, step.nodes)
        if step.nodes != seen.nodes:
            seconds += cost_s
        found.append(
            Remaining(
                nodes=step.nodes,
                seconds=seconds,
                error_s=error_s,
                steps_per_s=step.per_s,
                is_measured=step.is_measured,
            )
        )
    return tuple(found)


def candidates_near(
    sizes: Sequence[Remaining], chosen: Remaining, why: Callable[[Remaining], str]
) -> tuple[Candidate, ...]:
    """Return the sizes nearest to the chosen one, in the order of their nodes, for the record."""
    near = sorted(sizes, key=lambda size: abs(size.nodes - chosen.nodes))[:CANDIDATES_LIMIT]
    return tuple(
        Candidate(
            nodes=size.nodes,
            steps_per_s=size.steps_per_s,
            is_measured=size.is_measured,
            why=why(size),
        )
        for size in sorted(near, key=lambda size: size.nodes)
    )

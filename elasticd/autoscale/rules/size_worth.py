"""The worth of a size for a job, compared with the present size."""

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.autoscale.curve.estimate import SizeEstimate
from elasticd.autoscale.curve.window import FIRST_STEPS, WINDOW_STEPS
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.policy import GoodputRule

__all__ = [
    "GROWTH_SHARE",
    "SHRINK_SHARE",
    "ComparisonBasis",
    "SizeWorth",
    "size_worth",
    "trial_loss_s",
]

GROWTH_SHARE = 0.005
"""The additional worth that a larger size needs, as a share of the present worth."""
SHRINK_SHARE = 0.03
"""The additional worth that a smaller size needs: in doubt the job trains on more nodes."""
SHRINK_ERRORS = 2.0
"""A smaller size must also be better by this many standard errors of both: so noise does not undo a
move that noise caused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeWorth:
    """One size that was considered, with its worth."""

    step: SizeEstimate
    gain_steps: float
    """The steps gained within the horizon, less the cost of the change."""
    worth: float
    """The worth of the size, as a factor of the present size's worth."""
    needed: float
    """The value that the worth must exceed."""
    is_refused: bool

    @property
    def nodes(self) -> int:
        return self.step.nodes

    @property
    def is_better(self) -> bool:
        return self.worth > self.needed and not self.is_refused


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonBasis:
    """The common inputs for the comparison of all sizes."""

    rule: GoodputRule
    now: SizeEstimate
    horizon_s: float
    cost_s: float
    is_cost_seen: bool
    errors: Mapping[int, float]
    """The standard errors of the measured sizes, as parts of their steps."""

    def error_share(self, *nodes: int) -> float:
        """Return the possible error between two sizes; an unmeasured size counts as exact."""
        return sum(self.errors.get(each, 0.0) for each in nodes)


def size_worth(basis: ComparisonBasis, curve: Curve, step: SizeEstimate) -> SizeWorth:
    """Compare one size with the present one."""
    now = basis.now
    # The cost of the change is spread over the horizon.
    rate = step.per_s - now.per_s * basis.cost_s / basis.horizon_s
    worth = rate / now.per_s * (now.nodes / step.nodes) ** basis.rule.least_share
    needed = 1.0 + GROWTH_SHARE
    if step.nodes < now.nodes:
        needed = 1.0 + SHRINK_SHARE + SHRINK_ERRORS * basis.error_share(now.nodes, step.nodes)
    return SizeWorth(
        step=step,
        gain_steps=(rate - now.per_s) * basis.horizon_s,
        worth=worth,
        needed=needed,
        is_refused=step.nodes in curve.refused,
    )


def trial_loss_s(basis: ComparisonBasis, step_s: float, best_step_s: float) -> float:
    """Return the cost of a trial at a slower size, in seconds of the steps of a better one.

    At the smaller size a window also takes longer, because it needs its number of steps.
    """
    trial_s = max(basis.rule.probe_s, (FIRST_STEPS + WINDOW_STEPS) * step_s)
    return trial_s * (1.0 - best_step_s / step_s)

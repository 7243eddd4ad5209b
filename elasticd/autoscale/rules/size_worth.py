"""What a size is worth to a job, against the size of now."""

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.autoscale.curve.estimate import Step
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.policy import GoodputRule

__all__ = ["GROWTH_SHARE", "SHRINK_SHARE", "Scene", "SizeWorth", "size_worth"]

GROWTH_SHARE = 0.005
"""Of the worth, that a larger size must be worth more."""
SHRINK_SHARE = 0.03
"""Of the worth, that a smaller size must be worth more: in doubt the job trains on more nodes."""
SHRINK_ERRORS = 2.0
"""A smaller one also by so many standard errors of both sizes: then what noise made the job grow to
is not given back by noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeWorth:
    """One size that was looked at."""

    step: Step
    gain_steps: float
    """Within the horizon, less the cost of the change."""
    worth: float
    """That of the size of now is 1."""
    needed: float
    """What the worth must be more than."""
    is_refused: bool

    @property
    def nodes(self) -> int:
        return self.step.nodes

    @property
    def is_better(self) -> bool:
        return self.worth > self.needed and not self.is_refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What all sizes are compared by."""

    rule: GoodputRule
    now: Step
    horizon_s: float
    cost_s: float
    is_cost_seen: bool
    errors: Mapping[int, float]
    """Standard errors of the measured sizes, as parts of their steps."""

    def error_share(self, *nodes: int) -> float:
        """Return what sizes may be off together; one that is not measured is taken at its word."""
        return sum(self.errors.get(each, 0.0) for each in nodes)


def size_worth(scene: Scene, curve: Curve, step: Step) -> SizeWorth:
    """Compare one size with that of now."""
    now = scene.now
    # The steps that the change takes are spread over the horizon.
    rate = step.per_s - now.per_s * scene.cost_s / scene.horizon_s
    worth = rate / now.per_s * (now.nodes / step.nodes) ** scene.rule.least_share
    needed = 1.0 + GROWTH_SHARE
    if step.nodes < now.nodes:
        needed = 1.0 + SHRINK_SHARE + SHRINK_ERRORS * scene.error_share(now.nodes, step.nodes)
    return SizeWorth(
        step=step,
        gain_steps=(rate - now.per_s) * scene.horizon_s,
        worth=worth,
        needed=needed,
        is_refused=step.nodes in curve.refused,
    )

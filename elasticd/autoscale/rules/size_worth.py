"""What a size is worth to a job, against the size of now."""

from dataclasses import dataclass

from elasticd.autoscale.curve.estimate import Step, measured_sizes
from elasticd.autoscale.curve.size import standard_error_share
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.policy import GoodputRule

__all__ = ["Scene", "SizeWorth", "size_worth"]

LEAST_GAIN_SHARE = 0.02
"""Of the worth, for which a change is made at all."""


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


def size_worth(scene: Scene, curve: Curve, step: Step) -> SizeWorth:
    """Compare one size with that of now."""
    now = scene.now
    # The steps that the change takes are spread over the horizon.
    rate = step.per_s - now.per_s * scene.cost_s / scene.horizon_s
    worth = rate / now.per_s * (now.nodes / step.nodes) ** scene.rule.least_share
    error = sum(
        standard_error_share(curve, size)
        for size in measured_sizes(curve)
        if size.nodes in (now.nodes, step.nodes)
    )
    return SizeWorth(
        step=step,
        gain_steps=(rate - now.per_s) * scene.horizon_s,
        worth=worth,
        needed=1.0 + LEAST_GAIN_SHARE + error,
        is_refused=step.nodes in curve.refused,
    )

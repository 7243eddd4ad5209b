"""The policy of the simulations: the shipped defaults, and a metric that may go missing."""

from elasticd.records.autoscale.policy import (
    GoodputRule,
    MetricKind,
    Policy,
    TargetMetric,
    TargetRule,
)

__all__ = ["POLICY"]

POLICY = Policy(
    goodput=GoodputRule(),
    target=TargetRule(
        metrics=(TargetMetric(name="queue", query="queue", target=1.0, kind=MetricKind.LOAD),)
    ),
    set_at_unix_s=1.0,
)

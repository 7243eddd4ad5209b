"""What came of more nodes that a supply asked for: whether the supply rose with them. Pure.

The target rule promises no throughput: it asks for nodes until its metrics are where they should
be. Where nodes bring a supply next to nothing, because what limits it lies elsewhere, that ends at
MAX: all nodes paid for, and no target met. So growth that only supplies asked for is taken back
where each of them rose by less than a tenth of what was hoped, and the steps did as well. The bar
is that low since the target is what somebody asked for, at whatever a node is worth. Growth for a
load is never taken back (`benefit` judges it): a queue may take hours to become shorter.
"""

from elasticd.autoscale.evaluation_input import Seen
from elasticd.autoscale.hold import counted
from elasticd.records.autoscale.decision import Decision
from elasticd.records.autoscale.policy import MetricKind, TargetMetric, TargetRule

__all__ = ["LEAST_SHARE", "Supplied", "asked_for_more", "supplied", "value_before"]

LEAST_SHARE = 0.1
"""The least part of what was hoped that a growth must bring."""

Supplied = tuple[bool, str]
"""Whether the growth brought anything, and a sentence about it."""


def supplied(rule: TargetRule, decision: Decision, seen: Seen, got: float) -> Supplied | None:
    """Return whether a growth brought the supplies that asked for it anything.

    None: something else asked for it, or it is not known.

    Args: rule: that of the policy. decision: of this rule, and judged by now. seen: with what the
    queries say now. got: steps per second at the new size.
    """
    if decision.to_nodes <= decision.from_nodes or decision.from_nodes <= 0:
        return None
    asked = [each for each in rule.metrics if asked_for_more(each, decision)]
    if not asked or any(each.kind is not MetricKind.SUPPLY for each in asked):
        return None
    said, is_worth = [], False
    for metric in asked:
        reading = seen.readings.get(metric.name)
        if reading is None or reading.value is None:
            return None
        was, now = value_before(metric, decision), reading.value
        hoped = min(metric.target, was * decision.to_nodes / decision.from_nodes) - was
        is_worth = is_worth or now - was >= LEAST_SHARE * hoped
        said.append(
            f"{metric.name} was {was:.4g} where {metric.target:g} is asked for, and is {now:.4g} "
            f"on {counted(decision.to_nodes)}"
        )
    steps = decision.was_steps_per_s
    linear = steps * (decision.to_nodes / decision.from_nodes - 1.0)
    is_worth = is_worth or (steps > 0.0 and got - steps >= LEAST_SHARE * linear)
    why = "; ".join(said)
    return is_worth, f"{why}." if is_worth else f"{why}: they bring next to nothing."


def value_before(metric: TargetMetric, decision: Decision) -> float:
    """Return what a metric said when it was decided; 0 if that is not known."""
    return decision.inputs.get(f"metric {metric.name}", 0.0)


def asked_for_more(metric: TargetMetric, decision: Decision) -> bool:
    """Return whether a metric asked for more nodes; a load that is per node counts as the job's."""
    was = value_before(metric, decision)
    if was <= 0.0:
        return False
    if metric.kind is MetricKind.SUPPLY:
        return was < metric.target
    return was > metric.target * (decision.from_nodes if metric.is_per_node else 1)

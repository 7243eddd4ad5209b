"""Judges growth that a supply asked for: whether the supply rose with the nodes. Pure.

The target rule promises no throughput: it asks for nodes until its metrics are at their targets. If
nodes add almost nothing to a supply, because its limit is elsewhere, this ends at MAX: all nodes
are paid for, and no target is met. So growth that only supplies asked for is taken back if each of
them rose by less than a tenth of the expected rise, and the steps did too. The limit is that low
because a person asked for the target, whatever a node is worth. Growth for a load is never taken
back (`benefit` judges it): a queue may take hours to become shorter.
"""

from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.hold import counted
from elasticd.records.autoscale.decision import Decision
from elasticd.records.autoscale.policy import MetricKind, TargetMetric, TargetRule

__all__ = ["LEAST_SHARE", "Supplied", "asked_for_more", "supplied", "value_before"]

LEAST_SHARE = 0.1
"""The least part of the expected rise that a growth must bring."""

Supplied = tuple[bool, str]
"""A pair: whether the growth had an effect, and a sentence about that."""


def supplied(
    rule: TargetRule, decision: Decision, seen: Observation, got: float
) -> Supplied | None:
    """Return whether a growth raised the supplies that asked for it.

    The result is None if something else asked for the growth, or if the effect is not known.

    Args: rule: the policy's target rule. decision: a decision of this rule that can be judged now.
    seen: the input, with the present readings. got: steps per second at the new size.
    """
    if decision.to_nodes <= decision.from_nodes or decision.from_nodes <= 0:
        return None
    asked = [each for each in rule.metrics if asked_for_more(each, decision)]
    if not asked or any(each.kind is not MetricKind.SUPPLY for each in asked):
        return None
    sentences, is_worth = [], False
    for metric in asked:
        reading = seen.readings.get(metric.name)
        if reading is None or reading.value is None:
            return None
        was, now = value_before(metric, decision), reading.value
        hoped = min(metric.target, was * decision.to_nodes / decision.from_nodes) - was
        is_worth = is_worth or now - was >= LEAST_SHARE * hoped
        sentences.append(
            f"{metric.name} was {was:.4g} where {metric.target:g} is asked for, and is {now:.4g} "
            f"on {counted(decision.to_nodes)}"
        )
    steps = decision.was_steps_per_s
    linear = steps * (decision.to_nodes / decision.from_nodes - 1.0)
    is_worth = is_worth or (steps > 0.0 and got - steps >= LEAST_SHARE * linear)
    why = "; ".join(sentences)
    return is_worth, f"{why}." if is_worth else f"{why}: they bring next to nothing."


def value_before(metric: TargetMetric, decision: Decision) -> float:
    """Return the value of a metric at the decision; 0 if that is not known."""
    return decision.inputs.get(f"metric {metric.name}", 0.0)


def asked_for_more(metric: TargetMetric, decision: Decision) -> bool:
    """Return whether a metric asked for more nodes; a load per node counts as the whole job's."""
    was = value_before(metric, decision)
    if was <= 0.0:
        return False
    if metric.kind is MetricKind.SUPPLY:
        return was < metric.target
    return was > metric.target * (decision.from_nodes if metric.is_per_node else 1)

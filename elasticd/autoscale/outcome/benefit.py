"""Judges a decision that promised no throughput by the purpose of the decision. Pure.

Growth for a load is worth it if the load fell by at least a tenth of its excess over the target.
Fewer nodes are worth it if the metrics are still within their targets. Fewer nodes for a budget are
worth it if a step costs less than before. For an idle job, fewer nodes are worth it if the job
still waits for its data, and the return to more nodes if it does not. If the result is not clear,
there is no verdict, and nothing is taken back: a queue may take hours to become shorter, and each
of these rules proposes again by itself.
"""

from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.explain.quantity import number, percent
from elasticd.autoscale.hold import counted
from elasticd.autoscale.outcome.supply import LEAST_SHARE, asked_for_more, value_before
from elasticd.records.autoscale.decision import Decision, Rule
from elasticd.records.autoscale.policy import IdleRule, MetricKind, Policy, TargetMetric, TargetRule

__all__ = ["Benefit", "benefit", "idle_benefit"]

SECONDS_PER_HOUR = 3600.0
STEPS = 1000
"""The number of steps whose cost a sentence gives, since the cost of one step is a small number."""

Benefit = tuple[bool, str]
"""A pair: whether the decision was clearly worth it, and a sentence about that."""


def benefit(policy: Policy, decision: Decision, seen: Observation, got: float) -> Benefit | None:
    """Return the benefit of a decision without a promise; None if it is not known.

    Args: decision: the decision, whose new size has been measured. got: steps per second at that
    size.
    """
    is_growth = decision.to_nodes > decision.from_nodes
    match decision.rule:
        case Rule.TARGET if policy.target is not None:
            of_target = _of_loads if is_growth else _of_fewer_nodes
            return of_target(policy.target, decision, seen)
        case Rule.BUDGET if not is_growth:
            return _of_budget(decision, got)
        case Rule.IDLE if policy.idle is not None and is_growth:
            return _of_return(policy.idle, decision, seen)
        case _:
            return None


def idle_benefit(decision: Decision, seen: Observation) -> Benefit:
    """Return the benefit of fewer nodes for a job that still waits for its data.

    While the job waits, its steps say nothing about its size, so they are not measured.
    """
    share, nodes = percent(seen.data_share), counted(decision.to_nodes)
    return True, f"It still waits for its data, for {share} of its time, on {nodes}."


def _of_loads(rule: TargetRule, decision: Decision, seen: Observation) -> Benefit | None:
    asked = [each for each in rule.metrics if asked_for_more(each, decision)]
    if not asked or any(each.kind is not MetricKind.LOAD for each in asked):
        return None
    sentences, is_less = [], True
    for metric in asked:
        reading = seen.readings.get(metric.name)
        if reading is None or reading.value is None:
            return None
        was, now = value_before(metric, decision), reading.value
        too_much = was - _goal(metric, decision.from_nodes)
        is_less = is_less and was - now >= LEAST_SHARE * too_much
        sentences.append(f"{metric.name} was {number(was)}, and is {number(now)}")
    why = f"{'; '.join(sentences)} on {counted(decision.to_nodes)}"
    return is_less, f"{why}." if is_less else f"{why}, which may still come down."


def _of_fewer_nodes(rule: TargetRule, decision: Decision, seen: Observation) -> Benefit | None:
    tolerance = rule.tolerance if rule.up.tolerance is None else rule.up.tolerance
    sentences, is_met = [], True
    for metric in rule.metrics:
        reading = seen.readings.get(metric.name)
        if reading is None or reading.value is None:
            return None
        now, goal = reading.value, _goal(metric, decision.to_nodes)
        is_load = metric.kind is MetricKind.LOAD
        is_met = is_met and (
            now <= goal * (1 + tolerance) if is_load else goal <= now * (1 + tolerance)
        )
        sentences.append(f"{metric.name} is {number(now)} where {number(goal)} is asked for")
    return is_met, f"{'; '.join(sentences)}, on {counted(decision.to_nodes)}."


def _of_budget(decision: Decision, got: float) -> Benefit | None:
    was = decision.was_steps_per_s
    if was <= 0.0 or got <= 0.0:
        return None
    before, now = _node_hours(decision.from_nodes, was), _node_hours(decision.to_nodes, got)
    why = f"{STEPS} steps took {number(before)} node-hours, and take {number(now)}."
    return now < before, why


def _of_return(rule: IdleRule, decision: Decision, seen: Observation) -> Benefit:
    works = seen.data_share < rule.data_share
    share = percent(seen.data_share)
    return works, f"It waits for its data for {share} of its time on {counted(decision.to_nodes)}."


def _goal(metric: TargetMetric, nodes: int) -> float:
    return metric.target * (nodes if metric.is_per_node else 1)


def _node_hours(nodes: int, steps_per_s: float) -> float:
    return nodes * STEPS / steps_per_s / SECONDS_PER_HOUR

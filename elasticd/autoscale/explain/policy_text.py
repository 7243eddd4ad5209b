"""A policy in sentences: the content of its file, with the defaults of all absent keys.

Pure.
"""

from elasticd.autoscale.explain.quantity import clock, counted, number, percent, span
from elasticd.records.autoscale.policy import (
    Behavior,
    BudgetRule,
    DeadlineRule,
    GoodputRule,
    IdleRule,
    MetricKind,
    Policy,
    Rate,
    RateUnit,
    Select,
    TargetMetric,
    TargetRule,
)

__all__ = ["policy_lines", "policy_rules"]


def policy_rules(policy: Policy) -> tuple[str, ...]:
    """Return the names of the policy's rules, in the order in which they count."""
    rules = {
        "target": policy.target,
        "goodput": policy.goodput,
        "deadline": policy.deadline,
        "budget": policy.budget,
        "idle": policy.idle,
    }
    return tuple(name for name, rule in rules.items() if rule is not None)


def policy_lines(policy: Policy, *, min_nodes: int, max_nodes: int) -> list[str]:
    """Return lines about the rules; `min_nodes` and `max_nodes` are the job's own."""
    by = f" by {policy.set_by}" if policy.set_by else ""
    at = f" at {clock(policy.set_at_unix_s, has_day=True)}" if policy.set_at_unix_s else ""
    least, most = policy.min_nodes or min_nodes, policy.max_nodes or max_nodes
    parts = [
        f"{least}:{most} nodes",
        f"windows of {span(policy.window_s)}",
        f"{span(policy.cooldown_s)} between two changes",
    ]
    if policy.max_step:
        parts.append(f"at most {counted(policy.max_step, 'node')} at once")
    if policy.allow_restarts:
        parts.append("scripts may be restarted for it")
    lines = [f"policy set{by}{at}: {', '.join(parts)}"]
    if policy.is_dry_run:
        lines.append("it is a dry run: decisions are written down and not done")
    if policy.target is not None:
        lines += _target(policy.target)
    if policy.goodput is not None:
        lines.append(f"goodput: {_goodput(policy.goodput)}")
    if policy.deadline is not None:
        lines.append(f"deadline: {_deadline(policy.deadline)}")
    if policy.budget is not None:
        lines.append(f"budget: {_budget(policy.budget)}")
    if policy.idle is not None:
        lines.append(f"idle: {_idle(policy.idle)}")
    return lines


def _target(rule: TargetRule) -> list[str]:
    lines = [f"target: {_metric(metric)}" for metric in rule.metrics]
    for name, behavior in (("growing", rule.up), ("shrinking", rule.down)):
        lines.append(f"target: {name}: {_behavior(behavior, rule.tolerance)}")
    return lines


def _metric(metric: TargetMetric) -> str:
    way = "at most" if metric.kind is MetricKind.LOAD else "at least"
    where = " on each node" if metric.is_per_node else ""
    return (
        f"{metric.name} {way} {number(metric.target)}{where} ({metric.kind}), "
        f"not older than {span(metric.max_age_s)}, by: {metric.query}"
    )


def _behavior(behavior: Behavior, tolerance: float) -> str:
    if behavior.select is Select.DISABLED:
        return "never"
    own = tolerance if behavior.tolerance is None else behavior.tolerance
    parts = [f"beyond a tolerance of {percent(own)}"]
    if behavior.stabilization_s:
        parts.append(f"by the most careful wish of the last {span(behavior.stabilization_s)}")
    if behavior.rates:
        word = " or ".join(map(_rate, behavior.rates))
        which = "the larger" if behavior.select is Select.MAX else "the smaller"
        parts.append(f"{word}" + (f", {which}" if len(behavior.rates) > 1 else ""))
    return "; ".join(parts)


def _rate(rate: Rate) -> str:
    unit = " %" if rate.unit is RateUnit.PERCENT else (" node" if rate.amount == 1 else " nodes")
    return f"{number(rate.amount)}{unit} in {span(rate.period_s)}"


def _goodput(rule: GoodputRule) -> str:
    return (
        f"as many nodes as earn the cost of the change within {span(rule.horizon_s)}, as long as "
        f"the last one adds at least {percent(rule.least_share)} of what a node adds on average; "
        f"a size that was never measured is tried for {span(rule.probe_s)}"
    )


def _deadline(rule: DeadlineRule) -> str:
    return f"{rule.steps} steps by {clock(rule.at_unix_s, has_day=True)}, on as few nodes as can"


def _budget(rule: BudgetRule) -> str:
    if rule.node_hours:
        return f"{rule.steps} steps within {number(rule.node_hours)} node-hours"
    return f"{rule.steps} steps for {number(rule.cost)}, at the price by: {rule.price_query}"


def _idle(rule: IdleRule) -> str:
    return (
        f"the least size once the job has waited for its data {percent(rule.data_share)} of its "
        f"time, for {span(rule.after_s)}"
    )

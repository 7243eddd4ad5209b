"""Writes a policy as the text of a policy file, from which `parser` makes the same policy again.

Values that equal their defaults are left out. The file does not contain who set the policy, or
when.
"""

import json
from datetime import UTC, datetime

from elasticd.records.autoscale.policy import (
    DOWN,
    POLICY_SCHEMA,
    UP,
    Behavior,
    GoodputRule,
    IdleRule,
    MetricKind,
    Policy,
    Rate,
    RateUnit,
    TargetMetric,
    TargetRule,
)

__all__ = ["duration_text", "policy_toml"]

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))


def policy_toml(policy: Policy) -> str:
    """Return the text of a policy file."""
    plain = Policy()
    lines = [
        _line("schema", policy.version, POLICY_SCHEMA),
        _line("min_nodes", policy.min_nodes, plain.min_nodes),
        _line("max_nodes", policy.max_nodes, plain.max_nodes),
        _line("window", policy.window_s, plain.window_s, is_duration=True),
        _line("cooldown", policy.cooldown_s, plain.cooldown_s, is_duration=True),
        _line("max_step", policy.max_step, plain.max_step),
        _line("allow_restarts", policy.allow_restarts, plain.allow_restarts),
        _line("dry_run", policy.is_dry_run, plain.is_dry_run),
    ]
    if policy.target is not None:
        lines += _target(policy.target)
    if policy.goodput is not None:
        lines += _goodput(policy.goodput)
    if policy.deadline is not None:
        at = datetime.fromtimestamp(policy.deadline.at_unix_s, UTC).isoformat()
        lines += ["\n[deadline]\n", f"steps = {policy.deadline.steps}\n"]
        lines.append(f"at = {at.replace('+00:00', 'Z')}\n")
    if policy.budget is not None:
        lines += ["\n[budget]\n", f"steps = {policy.budget.steps}\n"]
        if policy.budget.price_query:
            lines.append(_line("cost", policy.budget.cost, None))
            lines.append(_line("price", policy.budget.price_query, None))
        else:
            lines.append(_line("node_hours", policy.budget.node_hours, None))
    if policy.idle is not None:
        lines += _idle(policy.idle)
    return "".join(lines).lstrip("\n")


def duration_text(seconds: float) -> str:
    """Return seconds in the form of a policy file: "90s", "5m", "2h"."""
    for unit, unit_s in _UNITS:
        if seconds and seconds % unit_s == 0:
            return f"{seconds / unit_s:.0f}{unit}"
    return f"{_number(seconds)}s"


def _target(rule: TargetRule) -> list[str]:
    plain = TargetRule(metrics=())
    lines = ["\n[target]\n", _line("tolerance", rule.tolerance, plain.tolerance)]
    for metric in rule.metrics:
        lines += _metric(metric)
    for name, behavior, default in (("scale_up", rule.up, UP), ("scale_down", rule.down, DOWN)):
        if behavior != default:
            lines += _behavior(name, behavior, default)
    return lines


def _metric(metric: TargetMetric) -> list[str]:
    plain = TargetMetric(name="", query="", target=1.0, kind=MetricKind.LOAD)
    return [
        "\n[[target.metrics]]\n",
        _line("name", metric.name, None),
        _line("query", metric.query, None),
        _line(metric.kind.value, metric.target, None),
        _line("per_node", metric.is_per_node, plain.is_per_node),
        _line("max_age", metric.max_age_s, plain.max_age_s, is_duration=True),
    ]


def _behavior(name: str, behavior: Behavior, plain: Behavior) -> list[str]:
    lines = [
        f"\n[target.{name}]\n",
        _line("stabilization", behavior.stabilization_s, plain.stabilization_s, is_duration=True),
        _line("select", behavior.select.value, plain.select.value),
    ]
    if behavior.tolerance is not None:
        lines.append(_line("tolerance", behavior.tolerance, None))
    if behavior.rates != plain.rates:
        lines.append(f"policies = [{', '.join(_rate(rate) for rate in behavior.rates)}]\n")
    return lines


def _rate(rate: Rate) -> str:
    amount = int(rate.amount) if rate.unit is RateUnit.NODES else _number(rate.amount)
    return f'{{{rate.unit} = {amount}, period = "{duration_text(rate.period_s)}"}}'


def _goodput(rule: GoodputRule) -> list[str]:
    plain = GoodputRule()
    return [
        "\n[goodput]\n",
        _line("horizon", rule.horizon_s, plain.horizon_s, is_duration=True),
        _line("least_share", rule.least_share, plain.least_share),
        _line("probe", rule.probe_s, plain.probe_s, is_duration=True),
    ]


def _idle(rule: IdleRule) -> list[str]:
    plain = IdleRule()
    return [
        "\n[idle]\n",
        _line("after", rule.after_s, plain.after_s, is_duration=True),
        _line("data_share", rule.data_share, plain.data_share),
    ]


def _line(key: str, value: object, default: object, *, is_duration: bool = False) -> str:
    """Return one line; nothing if the value is the default."""
    if value == default:
        return ""
    match value:
        case bool():
            text = "true" if value else "false"
        case int() | float() if is_duration:
            text = f'"{duration_text(value)}"'
        case int() | float():
            text = _number(value)
        case _:
            # JSON's strings are also TOML's, except for the one control character that JSON does
            # not escape.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{key} = {text}\n"


def _number(value: float) -> str:
    """Return a number in a form that is read as the same number; a whole number has no point."""
    if value == int(value) and abs(value) < 2**53:
        return str(int(value))
    return repr(float(value))

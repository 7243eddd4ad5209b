"""Parses the text of a policy file to a `Policy`, or fails with one sentence about the error.

This module checks everything that the file alone can show; `job_check` compares the policy with a
job. PromQL is not parsed: Prometheus checks the queries when the policy is set.
"""

import math
import tomllib

from elasticd.autoscale.policy_file.table import Table, shown
from elasticd.autoscale.rules.query import VARIABLES, is_closed, unquoted, variables
from elasticd.errors import CallError, NotSupported
from elasticd.records.autoscale.policy import (
    DOWN,
    POLICY_SCHEMA,
    PRICE,
    UP,
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

__all__ = ["METRICS_LIMIT", "parsed"]

METRICS_LIMIT = 16
RATES_LIMIT = 16
NAME_LIMIT = 80
WINDOW_LEAST_S = 1.0
STABILIZATION_LIMIT_S = 86_400.0
_RULES = ("target", "goodput", "deadline", "budget", "idle")


def parsed(text: str, *, file: str, now_unix_s: float) -> Policy:
    """Return the policy that a file's text asks for.

    Args: text: TOML. file: the name of the file, for messages. now_unix_s: the time from which a
    deadline with `within` counts.

    Raises: CallError: the text is no TOML, or not a policy; the message says what to write.
    NotSupported: the text was written for a newer version.
    """
    try:
        values: dict[str, object] = tomllib.loads(text)
        return _policy(values, file, now_unix_s)
    except RecursionError as exc:
        raise CallError(f"{file} is nested too deeply for a policy.") from exc
    except ValueError as exc:
        # TOMLDecodeError is a ValueError, and so is the error about a number of too many digits.
        raise CallError(f"{file} is not TOML: {str(exc).rstrip('.')}.") from exc


def _policy(values: dict[str, object], file: str, now_unix_s: float) -> Policy:
    version = _version(values, file)
    top = Table(file, "", values)
    if not any(rule in values for rule in _RULES):
        what = "is empty" if not values else "has no rule"
        rules = ", ".join(f"[{rule}]" for rule in _RULES)
        raise CallError(f"{file} {what}: add at least one of {rules}.")
    _check_steps(values, file)
    plain = Policy()
    least = top.integer("min_nodes", plain.min_nodes)
    most = top.integer("max_nodes", plain.max_nodes)
    if most and least > most:
        raise top.wrong_value("min_nodes", f"is above max_nodes = {most}")
    return Policy(
        version=version,
        min_nodes=least,
        max_nodes=most,
        window_s=top.duration("window", plain.window_s, least_s=WINDOW_LEAST_S, most_s=86_400.0),
        cooldown_s=top.duration("cooldown", plain.cooldown_s),
        max_step=top.integer("max_step", plain.max_step),
        allow_restarts=top.flag("allow_restarts", plain.allow_restarts),
        is_dry_run=top.flag("dry_run", plain.is_dry_run),
        target=_target(file, values["target"]) if "target" in values else None,
        goodput=_goodput(file, values["goodput"]) if "goodput" in values else None,
        deadline=_deadline(file, values, now_unix_s) if "deadline" in values else None,
        budget=_budget(file, values) if "budget" in values else None,
        idle=_idle(file, values["idle"]) if "idle" in values else None,
    )


def _version(values: dict[str, object], file: str) -> int:
    """Return the file's schema version; it comes before any key, as a newer schema has others."""
    found = values.get("schema", POLICY_SCHEMA)
    version = Table(file, "", {"schema": found}).integer("schema", POLICY_SCHEMA)
    if version > POLICY_SCHEMA:
        raise NotSupported(
            f"{file} has schema = {version}, and this elasticd knows {POLICY_SCHEMA} and below: "
            "update elasticd, or write the policy in that form."
        )
    return version


def _check_steps(values: dict[str, object], file: str) -> None:
    """Check that two rules do not name two numbers of steps for the one job."""
    found = [values.get(rule) for rule in ("deadline", "budget")]
    steps = [each["steps"] for each in found if isinstance(each, dict) and "steps" in each]
    if len(steps) == 2 and steps[0] != steps[1]:
        raise CallError(
            f"{file}: [deadline] has steps = {shown(steps[0])} and [budget] has steps = "
            f"{shown(steps[1])}, and both are the steps of the whole job: write one number."
        )


def _target(file: str, values: object) -> TargetRule:
    table = Table(file, "[target]", values)
    found = table.value("metrics")
    if found is None or found == []:
        raise table.wrong("has no metrics: add [[target.metrics]] with name, query and load")
    if isinstance(found, dict):
        raise table.wrong("has [target.metrics] as one table: write [[target.metrics]]")
    if not isinstance(found, list):
        raise table.wrong_value("metrics", "must be tables: write [[target.metrics]]")
    if len(found) > METRICS_LIMIT:
        raise table.wrong(f"has {len(found)} metrics, and may have {METRICS_LIMIT}")
    metrics: list[TargetMetric] = []
    for number, each in enumerate(found, 1):
        metrics.append(_metric(file, each, number, tuple(metric.name for metric in metrics)))
    plain = TargetRule(metrics=())
    return TargetRule(
        metrics=tuple(metrics),
        tolerance=table.number("tolerance", plain.tolerance, least=0.0),
        up=_behavior(file, "scale_up", table.value("scale_up"), UP),
        down=_behavior(file, "scale_down", table.value("scale_down"), DOWN),
    )


def _metric(file: str, values: object, number: int, names: tuple[str, ...]) -> TargetMetric:
    title = "[[target.metrics]]"
    table = Table(file, title, values, place=f"{title} number {number}")
    table.required("name")
    name = table.text("name", limit=NAME_LIMIT)
    if name in names:
        raise table.wrong_value("name", "is the name of an earlier metric: give it another one")
    if name == PRICE:
        raise table.wrong_value("name", "is kept for the price of a budget: give it another one")
    table = Table(file, title, values, place=f"{title} {shown(name)}")
    table.required("query")
    kind = table.one_of(
        ("load", "supply"),
        "load for a metric that falls when nodes come, supply for one that rises",
    )
    is_per_node = table.flag("per_node", False)
    if is_per_node and kind == "supply":
        raise table.wrong(
            "has a supply with per_node = true, which no number of nodes can bring about: more "
            "nodes do not make each of them faster; give the target of the whole job"
        )
    plain = TargetMetric(name=name, query="", target=1.0, kind=MetricKind(kind))
    return TargetMetric(
        name=name,
        query=_query(table, "query"),
        target=table.number(kind, 0.0, above=0.0),
        kind=MetricKind(kind),
        is_per_node=is_per_node,
        max_age_s=table.duration("max_age", plain.max_age_s, least_s=1.0),
    )


def _query(table: Table, key: str) -> str:
    query = table.text(key, may_have_lines=True)
    if not is_closed(query):
        raise table.wrong_value(key, "has a quote without its other half")
    if "job" in unquoted(query):
        raise table.wrong_value(key, 'has $job outside of quotes: write {job_name="$job"}')
    names = [name for name in variables(query) if name not in VARIABLES]
    # `label_replace` refers to the groups of its expression in the same form.
    if names and "label_replace" not in query:
        raise table.wrong_value(
            key, f"has ${names[0]}, and only $job and $window are filled in: write one of them"
        )
    return query


def _behavior(file: str, name: str, values: object, plain: Behavior) -> Behavior:
    if values is None:
        return plain
    table = Table(file, f"[target.{name}]", values)
    select = table.word("select", tuple(each.value for each in Select), plain.select.value)
    has_tolerance = "tolerance" in table
    return Behavior(
        stabilization_s=table.duration(
            "stabilization", plain.stabilization_s, most_s=STABILIZATION_LIMIT_S
        ),
        tolerance=table.number("tolerance", 0.0, least=0.0) if has_tolerance else None,
        select=Select(select),
        rates=_rates(file, table) if "policies" in table else plain.rates,
    )


def _rates(file: str, table: Table) -> tuple[Rate, ...]:
    found = table.value("policies")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise table.wrong_value(
            "policies", 'must be a list as in [{nodes = 4, period = "15s"}, ...]'
        )
    if len(found) > RATES_LIMIT:
        raise table.wrong(f"has {len(found)} policies, and may have {RATES_LIMIT}")
    return tuple(_rate(file, each) for each in found)


def _rate(file: str, values: dict[str, object]) -> Rate:
    table = Table(file, "policies = [{...}]", values, place=f"the policy {shown(values)}")
    unit = table.one_of(("nodes", "percent"), 'as in {nodes = 4, period = "15s"}')
    table.required("period")
    is_nodes = unit == "nodes"
    return Rate(
        amount=table.integer("nodes", 1) if is_nodes else table.number("percent", 0.0, above=0.0),
        unit=RateUnit(unit),
        period_s=table.duration("period", 0.0, least_s=1.0, most_s=86_400.0),
    )


def _goodput(file: str, values: object) -> GoodputRule:
    table = Table(file, "[goodput]", values)
    plain = GoodputRule()
    return GoodputRule(
        horizon_s=table.duration("horizon", plain.horizon_s, least_s=1.0),
        least_share=table.share("least_share", plain.least_share, may_be_zero=True),
        probe_s=table.duration("probe", plain.probe_s, least_s=1.0),
    )


def _deadline(file: str, values: dict[str, object], now_unix_s: float) -> DeadlineRule:
    table = Table(file, "[deadline]", values["deadline"])
    steps = _steps(table, values, "budget")
    which = table.one_of(("at", "within"), 'as in at = 2026-11-24T08:00:00Z or within = "8h"')
    if which == "at":
        return DeadlineRule(steps=steps, at_unix_s=table.moment("at"))
    return DeadlineRule(
        steps=steps, at_unix_s=now_unix_s + table.duration("within", 0.0, least_s=1.0)
    )


def _budget(file: str, values: dict[str, object]) -> BudgetRule:
    table = Table(file, "[budget]", values["budget"])
    steps = _steps(table, values, "deadline")
    which = table.one_of(("node_hours", "cost"), "as in node_hours = 500, or cost with price")
    if which == "node_hours":
        if "price" in table:
            raise table.wrong("has node_hours and a price: give cost with price, or node_hours")
        return BudgetRule(steps=steps, node_hours=table.number("node_hours", 0.0, above=0.0))
    cost = table.number("cost", 0.0, above=0.0)
    table.required("price")
    if isinstance(table.value("price"), str):
        return BudgetRule(steps=steps, cost=cost, price_query=_query(table, "price"))
    hours = cost / table.number("price", 0.0, above=0.0)
    if not 0.0 < hours < math.inf:
        raise table.wrong_value("price", "makes no sense beside this cost")
    return BudgetRule(steps=steps, node_hours=hours)


def _steps(table: Table, values: dict[str, object], other: str) -> int:
    """Return the job's steps: the table's own, or those of the other rule that needs steps."""
    beside = values.get(other)
    if "steps" not in table and isinstance(beside, dict) and "steps" in beside:
        return Table(table.file, f"[{other}]", beside).integer("steps", 0)
    table.required("steps")
    return table.integer("steps", 0)


def _idle(file: str, values: object) -> IdleRule:
    table = Table(file, "[idle]", values)
    plain = IdleRule()
    return IdleRule(
        after_s=table.duration("after", plain.after_s),
        data_share=table.share("data_share", plain.data_share),
    )

"""All keys of a policy file: the form, default and meaning of each.

The parser refuses any other key, and the page for people is made from this list.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ALIASES", "KEYS", "SECTIONS", "Form", "Key", "Section"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a value."""

    name: str
    example: str
    """An example, as it is written in the file."""


DURATION = Form(name="duration", example='"5m"')
INTEGER = Form(name="whole number", example="4")
STEPS = Form(name="whole number", example="100000")
NUMBER = Form(name="number", example="100")
SHARE = Form(name="share", example="0.5")
RATIO = Form(name="ratio", example="0.1")
FLAG = Form(name="flag", example="true")
TEXT = Form(name="text", example='"queue"')
PROMQL = Form(name="PromQL", example="""'sum(rate(x_total{job_name="$job"}[$window]))'""")
MOMENT = Form(name="time with its zone", example="2026-11-24T08:00:00Z")
WORD = Form(name="word", example='"min"')
RATES = Form(name="list of rates", example='[{nodes = 4, period = "15s"}]')
PRICE = Form(name="PromQL or number", example="2.5")
TABLE = Form(name="table", example="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of one section."""

    form: Form
    default: str
    """The default as it would be written in the file, or in words."""
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the file."""

    title: str
    """The title as it is written in the file, with its brackets."""
    meaning: str
    keys: Mapping[str, Key]


def _key(form: Form, default: str, meaning: str) -> Key:
    return Key(form=form, default=default, meaning=meaning)


_STEPS = (
    "Steps that the whole job makes. Of `[deadline]` and `[budget]` one may leave them out; both "
    "have the same number."
)
_BEHAVIOR = {
    "tolerance": _key(RATIO, "that of `[target]`", "The tolerance of this direction; above 1 too."),
    "select": _key(WORD, '"max"', "Which of several policies counts: the one that allows most "
                   "(max) or least (min); disabled forbids the direction."),
}  # fmt: skip

SECTIONS = (
    Section(
        title="",
        meaning="Limits for all rules. They stand above the first table.",
        keys={
            "schema": _key(Form(name="whole number", example="1"), "1", "The form of this file."),
            "min_nodes": _key(INTEGER, "the job's", "Never fewer nodes than this."),
            "max_nodes": _key(INTEGER, "the job's", "Never more nodes than this."),
            "window": _key(DURATION, '"1m"', "What `$window` stands for in queries, and how much "
                           "of a generation one measurement wants at least."),
            "cooldown": _key(DURATION, '"30s"', "After a change of size no other one for so long."),
            "max_step": _key(INTEGER, "any number", "At most so many nodes at once."),
            "allow_restarts": _key(FLAG, "false", "Jobs whose scripts are restarted by a change of "
                                   "size may be resized."),
            "dry_run": _key(FLAG, "false", "Decisions are written down and not done."),
            "target": _key(TABLE, "no such rule", "See below."),
            "goodput": _key(TABLE, "no such rule", "See below."),
            "deadline": _key(TABLE, "no such rule", "See below."),
            "budget": _key(TABLE, "no such rule", "See below."),
            "idle": _key(TABLE, "no such rule", "See below."),
        },
    ),
    Section(
        title="[target]",
        meaning="The algorithm of the Kubernetes HPA (autoscaling/v2), with nodes for pods.",
        keys={
            "metrics": _key(TABLE, "at least one", "The metrics: see below."),
            "tolerance": _key(RATIO, "0.1", "A metric this near to its target changes nothing."),
            "scale_up": _key(TABLE, "see below", "How fast it grows."),
            "scale_down": _key(TABLE, "see below", "How fast it shrinks."),
        },
    ),
    Section(
        title="[[target.metrics]]",
        meaning="One metric; the one that asks for most nodes counts. Either `load` or `supply`.",
        keys={
            "name": _key(TEXT, "must be given", "What sentences call it; without a Prometheus, the "
                         "metric of the agents that is meant."),
            "query": _key(PROMQL, "must be given", "One number for the whole job. `$job` is the "
                          "job's name, `$window` the window."),
            "load": _key(NUMBER, "", "The target of a metric that falls when nodes come: a queue, "
                         "a lag. Above it the job grows."),
            "supply": _key(NUMBER, "", "The target of a metric that rises when nodes come: a "
                           "throughput. Below it the job grows."),
            "per_node": _key(FLAG, "false", "The target of a load is for each node, as the HPA's "
                             "AverageValue."),
            "max_age": _key(DURATION, '"1m"', "An older sample counts as missing."),
        },
    ),
    Section(
        title="[target.scale_up]",
        meaning="The HPA's `behavior.scaleUp`.",
        keys={
            "stabilization": _key(DURATION, '"0s"', "It grows to the least that was asked for "
                                  "within this time."),
            "policies": _key(RATES, '[{percent = 100, period = "15s"}, '
                             '{nodes = 4, period = "15s"}]',
                             "At most so much within each period; [] is no limit."),
            **_BEHAVIOR,
        },
    ),
    Section(
        title="[target.scale_down]",
        meaning="The HPA's `behavior.scaleDown`.",
        keys={
            "stabilization": _key(DURATION, '"5m"', "It shrinks to the most that was asked for "
                                  "within this time."),
            "policies": _key(RATES, '[{percent = 100, period = "15s"}]',
                             "At most so much within each period; [] is no limit."),
            **_BEHAVIOR,
        },
    ),
    Section(
        title="policies = [{...}]",
        meaning="One rate of a direction. Either `nodes` or `percent`.",
        keys={
            "nodes": _key(INTEGER, "", "At most so many nodes."),
            "percent": _key(NUMBER, "", "At most this part of the nodes at the period's begin."),
            "period": _key(DURATION, "must be given", "Within so long."),
        },
    ),
    Section(
        title="[goodput]",
        meaning="As many nodes as pay for themselves, by what the job's own steps take.",
        keys={
            "horizon": _key(DURATION, '"30m"', "A change must have earned its cost within this."),
            "least_share": _key(SHARE, "0.5", "The last node must add at least this part of what a "
                                "node adds on average."),
            "probe": _key(DURATION, '"1m"', "How long a size that was never measured is tried."),
        },
    ),
    Section(
        title="[deadline]",
        meaning="The smallest size that ends the job in time. Either `at` or `within`.",
        keys={
            "steps": _key(STEPS, "must be given", _STEPS),
            "at": _key(MOMENT, "", "When it is to be over."),
            "within": _key(DURATION, "", "In how long from the moment the policy is set."),
        },
    ),
    Section(
        title="[budget]",
        meaning="The largest size whose cost to the job's end stays within the budget. Either "
        "`node_hours`, or `cost` with `price`.",
        keys={
            "steps": _key(STEPS, "must be given", _STEPS),
            "node_hours": _key(NUMBER, "", "Hours of all nodes together."),
            "cost": _key(NUMBER, "", "Money, in the currency of the price."),
            "price": _key(PRICE, "", "What one node costs in an hour."),
        },
    ),
    Section(
        title="[idle]",
        meaning="The least number of nodes while the job waits for its data.",
        keys={
            "after": _key(DURATION, '"1m"', "Not before it has done so for so long."),
            "data_share": _key(SHARE, "0.9", "It waits for its data where this part of its time "
                               "goes to that."),
        },
    ),
)  # fmt: skip
KEYS: Mapping[str, Mapping[str, Key]] = {each.title: each.keys for each in SECTIONS}

ALIASES: Mapping[str, str] = {
    "minReplicas": "min_nodes",
    "maxReplicas": "max_nodes",
    "min": "min_nodes",
    "max": "max_nodes",
    "behavior": "scale_up and scale_down",
    "scaleUp": "scale_up",
    "scaleDown": "scale_down",
    "stabilizationWindowSeconds": "stabilization",
    "selectPolicy": "select",
    "periodSeconds": "period",
    "pods": "nodes",
    "value": "load or supply",
    "averageValue": "load with per_node = true",
    "averageUtilization": "load with per_node = true",
    "target_value": "load or supply",
    "expr": "query",
    "promql": "query",
    "version": "schema",
    "total_steps": "steps",
    "max_steps": "steps",
    "by": "at",
}
"""Names that a key has in other programs, mostly in the HPA, with its name here."""

"""The target rule: the algorithm of the Kubernetes HPA (autoscaling/v2), on any metrics.

A metric at twice its target asks for twice the nodes. The model for each metric is: ratio = value /
target, and the job should have ceil(ratio x nodes); within the tolerance the size stays. Of several
metrics the one that asks for most nodes counts.

The rule uses two sizes. `seen.wanted` corresponds to the HPA's `spec.replicas`: the size that stays
if there is no change. `seen.nodes` corresponds to its number of ready pods: the nodes that train,
from which the value comes.

The HPA treats every metric as a *load*, which falls when replicas are added. A throughput is a
*supply*, which rises with the replicas: below its target it asks for more nodes, so its ratio is
inverted. The HPA itself would make such a job smaller.

The HPA's treatment of pods that are not ready, or that have no sample while others have one, has no
counterpart here: a query answers with one number for the job, and a node of a world has no state
between training and not training. Without any number there is no proposal. If some of several
metrics are missing, the others may make the job larger, and never smaller.
"""

import math
from dataclasses import dataclass

from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.autoscale.proposal import Proposal
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import MetricKind, TargetMetric, TargetRule

__all__ = ["FACTOR_LIMIT", "NODES_LIMIT", "missing", "propose"]

FACTOR_LIMIT = 1e15
"""If a value is this many times its target, or a supply this far below its target, the query is
wrong: no real count differs so much, and the resulting size would be absurd."""
NODES_LIMIT = 2**31 - 1
"""The largest size that the rule asks for; the HPA's sizes are 32-bit integers too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """The wish of one metric."""

    nodes: int | None
    """The size; None if the metric's number is missing or cannot be used."""
    why: str
    held: str = ""
    """A word of `HoldReason`."""
    is_zero_supply: bool = False
    """True if the number is present, but gives no size."""


def propose(rule: TargetRule, seen: Observation, memory: Memory) -> Proposal:
    """Return the size that the metrics ask for, before stabilization and rates."""
    del memory  # Not needed: earlier proposals matter to `behavior` alone.
    if seen.nodes <= 0 or seen.wanted <= 0:
        return Proposal(
            rule=Rule.TARGET,
            nodes=None,
            why="No world trains, so the metrics say nothing about a number of nodes.",
            held=HoldReason.NOT_RUNNING,
        )
    wishes = [_wish(rule, metric, seen) for metric in rule.metrics]
    there = [wish for wish in wishes if wish.nodes is not None]
    missing = [wish for wish in wishes if wish.nodes is None]
    nodes = max((wish.nodes for wish in there if wish.nodes is not None), default=None)
    sentence = "; ".join(wish.why for wish in wishes)
    if nodes is None or (missing and nodes < seen.wanted):
        held = missing[0].held if missing else HoldReason.EMPTY
        if nodes is not None:
            sentence += "; while one is missing, the others do not make the job smaller"
        return Proposal(
            rule=Rule.TARGET, nodes=None, why=_sentence(sentence), held=held, may_shrink=False
        )
    if len(there) > 1:
        sentence += f"; the most is {_counted(nodes)}"
    return Proposal(rule=Rule.TARGET, nodes=nodes, why=_sentence(sentence), may_shrink=not missing)


def missing(rule: TargetRule, seen: Observation) -> tuple[str, str] | None:
    """Return why the first metric lacks a number, and a sentence about all that lack one.

    None means that each has its number. A supply of 0 is a number: a job without data has no
    throughput.
    """
    wishes = [_wish(rule, metric, seen) for metric in rule.metrics]
    lacking = [wish for wish in wishes if wish.nodes is None and not wish.is_zero_supply]
    if not lacking:
        return None
    return lacking[0].held, _sentence("; ".join(wish.why for wish in lacking))


def _wish(rule: TargetRule, metric: TargetMetric, seen: Observation) -> _Wish:
    """Return the wish of one metric."""
    reading = seen.readings.get(metric.name)
    refused = _refused(metric, reading)
    if refused is not None or reading is None or reading.value is None:
        return refused or _Wish(nodes=None, why=f"{metric.name} is missing", held=HoldReason.EMPTY)
    value = reading.value
    # The targets of all nodes are added, since the value is the whole job's.
    asked = metric.target * (seen.nodes if metric.is_per_node else 1)
    if metric.kind is MetricKind.SUPPLY and value == 0:
        why = f"{metric.name} is 0, and a supply of nothing says nothing of how many nodes it takes"
        return _Wish(nodes=None, why=why, held=HoldReason.NOT_A_NUMBER, is_zero_supply=True)
    ratio = asked / value if metric.kind is MetricKind.SUPPLY else value / asked
    if not value / asked <= FACTOR_LIMIT or not ratio <= FACTOR_LIMIT:
        why = f"{metric.name} is {value:g} where {_asked(metric)}, which no query means"
        return _Wish(nodes=None, why=why, held=HoldReason.NOT_A_NUMBER)
    is_at = f"{metric.name} is {value:g} where {_asked(metric)}"
    tolerance = _tolerance(rule, is_up=ratio > 1.0)
    if 1.0 - tolerance <= ratio <= 1.0 + tolerance:
        why = (
            f"{is_at}, within the tolerance of {100 * tolerance:g} %: {_counted(seen.wanted)} stay"
        )
        return _Wish(nodes=seen.wanted, why=why)
    if metric.is_per_node and metric.kind is MetricKind.LOAD:
        nodes = _ceiled(value / metric.target)
        return _Wish(nodes=nodes, why=f"{is_at}, so it takes {_counted(nodes)}")
    # The multiplication comes first, so that the rounding of a float does not turn 11 nodes into
    # 12.
    product = asked * seen.nodes / value if metric.kind is MetricKind.SUPPLY else None
    nodes = _ceiled(product if product is not None else value * seen.nodes / asked)
    why = f"{is_at}, and {ratio:.4g} times {_counted(seen.nodes)} make {nodes}"
    return _Wish(nodes=nodes, why=why)


def _refused(metric: TargetMetric, reading: QueryReading | None) -> _Wish | None:
    """Return a wish with the reason why a reading cannot be used; None if it can."""
    if reading is None:
        return _Wish(nodes=None, why=f"{metric.name} was not asked for", held=HoldReason.EMPTY)
    value = reading.value
    if value is None:
        detail = reading.detail.rstrip(".") or reading.why.replace("_", " ") or "no sample"
        why = f"{metric.name} is missing ({detail})"
        return _Wish(nodes=None, why=why, held=reading.why or HoldReason.EMPTY)
    if not math.isfinite(value):
        return _Wish(nodes=None, why=f"{metric.name} is {value}", held=HoldReason.NOT_A_NUMBER)
    if value < 0:
        return _Wish(
            nodes=None, why=f"{metric.name} is {value:g}, below 0", held=HoldReason.NEGATIVE
        )
    if reading.age_s > metric.max_age_s:
        why = f"{metric.name} is {reading.age_s:.0f} s old, and older than {metric.max_age_s:g} s"
        return _Wish(nodes=None, why=f"{why} counts as missing", held=HoldReason.STALE)
    return None


def _tolerance(rule: TargetRule, *, is_up: bool) -> float:
    """Return the tolerance of a direction: its own, or the rule's."""
    own = (rule.up if is_up else rule.down).tolerance
    return rule.tolerance if own is None else own


def _ceiled(size: float) -> int:
    return NODES_LIMIT if size >= NODES_LIMIT else math.ceil(size)


def _asked(metric: TargetMetric) -> str:
    return f"{metric.target:g} is asked for" + (" of each node" if metric.is_per_node else "")


def _counted(nodes: int) -> str:
    return f"{nodes} node" + ("" if nodes == 1 else "s")


def _sentence(sentence: str) -> str:
    if "_" in sentence.partition(" ")[0]:
        return f"{sentence}."  # A metric's name keeps its spelling.
    return sentence[:1].upper() + sentence[1:] + "."

"""The answers of a job's queries during its life, and the assumed answers at other sizes. Pure.

Prometheus has the values of each query at the size that the job had. For another size these values
are assumed: a *supply* grows with the job's rate there, from the job's own curve; a *load* falls in
proportion to the nodes, as in the HPA; a load per node and a price stay the same. If Prometheus has
no number, the simulated autoscaler has none either.

A job that waited for its data got them at a rate that no number of nodes changes.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.rules.idle import NO_WAIT_SHARE
from elasticd.autoscale.simulator.scenario import DataRate
from elasticd.autoscale.simulator.shape import Shape
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.policy import MetricKind, Policy, TargetMetric

__all__ = ["JobPast", "PastMetrics", "PastValue", "Sizes"]

GAP_STEPS = 1.5
"""A point counts until the next one is late by this many steps of the query."""
PAUSED_SHARE = 0.5
"""If pauses took more of the slots' time than this part, the job was paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastValue:
    """The value of one query at one time."""

    at_s: float
    """The seconds since the begin of the job."""
    value: float
    """Finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPast:
    """Prometheus' values from one job's life; each sequence is in the order of its times."""

    step_s: float
    """The seconds between two points."""
    readings: Mapping[str, Sequence[PastValue]] = field(default_factory=dict)
    """The values by the name of the metric in the policy; the price of a budget is under
    `price`."""
    pause_share: Sequence[PastValue] = ()
    """The part of the slots' time that went to pauses."""
    data_share: Sequence[PastValue] = ()
    """The part of the slots' time that went to waiting for data."""

    @property
    def pauses(self) -> tuple[tuple[float, float], ...]:
        """Return the time spans in which the job was paused: their begins and ends, in seconds."""
        found: list[tuple[float, float]] = []
        for each in self.pause_share:
            if each.value <= PAUSED_SHARE:
                continue
            until_s = each.at_s + self.step_s
            if found and each.at_s <= found[-1][1] + GAP_STEPS * self.step_s:
                found[-1] = (found[-1][0], until_s)
            else:
                found.append((each.at_s, until_s))
        return tuple(found)

    def data_rates(self, shape: Shape, nodes_at: Callable[[float], int]) -> tuple[DataRate, ...]:
        """Return the rate of the data while the job waited for them; infinite at other times."""
        found: list[DataRate] = []
        for each in self.data_share:
            rate = math.inf
            if each.value >= NO_WAIT_SHARE:
                rate = max(0.0, 1.0 - each.value) * shape.rate(nodes_at(each.at_s))
            if rate != (found[-1].steps_per_s if found else math.inf):
                found.append(DataRate(from_s=each.at_s, steps_per_s=rate))
        return tuple(found)

    def value_at(self, name: str, at_s: float) -> float | None:
        """Return the metric's value at that time; None if Prometheus has no number for it."""
        values = self.readings.get(name, ())
        at = bisect_right(values, at_s, key=lambda each: each.at_s) - 1
        if at < 0 or at_s - values[at].at_s > GAP_STEPS * self.step_s:
            return None
        return values[at].value


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The number of nodes that the job had at each time."""

    from_s: tuple[float, ...]
    nodes: tuple[int, ...]

    def at(self, at_s: float) -> int:
        """Return the number of nodes at that time; a time before the begin counts as the begin."""
        return self.nodes[max(0, bisect_right(self.from_s, at_s) - 1)]


class PastMetrics:
    """Gives the answers that the queries of the simulated policy would have given."""

    def __init__(self, past: JobPast, policy: Policy, sizes: Sizes, shape: Shape) -> None:
        self._past, self._sizes, self._shape = past, sizes, shape
        rule = policy.target
        self._metrics = {each.name: each for each in (rule.metrics if rule is not None else ())}

    def read(self, now_s: float, nodes: int, steps: float) -> dict[str, QueryReading]:
        """Return the answers that the queries would have given on this number of nodes."""
        del steps
        return {name: self._reading(name, now_s, nodes) for name in self._past.readings}

    def _reading(self, name: str, now_s: float, nodes: int) -> QueryReading:
        value = self._past.value_at(name, now_s)
        if value is None:
            detail = "Prometheus has no number of that time"
            return QueryReading(value=None, why=HoldReason.EMPTY, detail=detail)
        if value < 0:
            return QueryReading(value=None, why=HoldReason.NEGATIVE, detail=f"It was {value:g}.")
        metric = self._metrics.get(name)
        had = self._sizes.at(now_s)
        if metric is None or nodes <= 0 or had <= 0:
            return QueryReading(value=value)
        return QueryReading(value=value * self._factor(metric, had, nodes))

    def _factor(self, metric: TargetMetric, had: int, nodes: int) -> float:
        if metric.kind is MetricKind.SUPPLY:
            return self._shape.rate(nodes) / self._shape.rate(had)
        return 1.0 if metric.is_per_node else had / nodes

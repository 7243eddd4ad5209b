"""Finds the metric of the agents that a query names, or the reason why it names none. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from elasticd.autoscale.metrics_source import Query
from elasticd.errors import CallError
from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.metric import Exporter, Metric, MetricType, MetricUnit

__all__ = ["SeriesQuery", "wanted"]

_SELECTOR = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^{}]*)\})?\s*")
_MATCHER = re.compile(r"""\s*([a-zA-Z_]\w*)\s*=\s*(?:"([^"\\]*)"|'([^'\\]*)'|`([^`]*)`)\s*""")
_METRICS = {metric.name: metric for metric in CATALOG}
_JOB = "job_name"
HINT = "give --prometheus URL, or name a metric of the agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """The series of one metric whose values result in one number."""

    metric: Metric
    labels: Mapping[str, str] = field(default_factory=dict)
    """The metric's labels, each with the value that it must have."""

    @property
    def is_rate(self) -> bool:
        """Return True for a counter, which is read as its rate over the window; False for a gauge,
        which is read as its value.
        """
        return self.metric.kind is MetricType.COUNTER

    @property
    def is_sum(self) -> bool:
        """Return True for the sum over all nodes; False for the one node with the series."""
        return self.metric.exporter is not Exporter.RANK_0


def wanted(query: Query) -> SeriesQuery:
    """Return the series that the query means: those in its text if that is a metric of the list,
    otherwise those of the metric by whose name the policy calls the query.

    Raises: CallError: the query is PromQL and its name is no metric of the list, or the metric is
    not a single number.
    """
    found = _SELECTOR.fullmatch(query.text)
    metric = _METRICS.get(found[1]) if found is not None else None
    if found is not None and metric is not None:
        labels = _labels(found[2] or "", query)
    else:
        metric, labels = _METRICS.get(query.name), {}
        if metric is None:
            raise CallError(_no_metric(query, found[1] if found is not None else ""))
    _refuse_no_number(metric)
    names = [label.name for label in metric.labels]
    if _JOB in names:
        labels.setdefault(_JOB, query.job)
    if strange := [name for name in labels if name not in names]:
        raise CallError(f"{metric.name} has no label {strange[0]}: it has {_listed(names)}.")
    if missing := [name for name in names if name not in labels]:
        raise CallError(
            f"{metric.name} has a series for each {missing[0]}: name one, as "
            f'{metric.name}{{{missing[0]}="..."}}.'
        )
    return SeriesQuery(metric=metric, labels=labels)


def _labels(braces: str, query: Query) -> dict[str, str]:
    labels = {}
    for part in braces.split(",") if braces.strip() else ():
        if not part.strip():
            continue
        found = _MATCHER.fullmatch(part)
        if found is None:
            raise CallError(
                f"{query.name}: {query.text} compares labels by more than `=`, which is PromQL, "
                "and without a Prometheus only metrics of the agents are known, by their names: "
                f"{HINT}."
            )
        labels[found[1]] = next(value for value in found.groups()[1:] if value is not None)
    return labels


def _no_metric(query: Query, name: str) -> str:
    if not name:
        return (
            f"{query.name}: {query.text} is PromQL, and without a Prometheus only metrics of the "
            f"agents are known, by their names (docs/metrics.md): {HINT}, as the query or as the "
            "metric's name."
        )
    near = get_close_matches(name, _METRICS, 1)
    meant = f" Is {near[0]} meant?" if near else ""
    return (
        f"{query.name}: {name} is no metric of the agents (docs/metrics.md), and without a "
        f"Prometheus there are no others.{meant}"
    )


def _refuse_no_number(metric: Metric) -> None:
    if metric.exporter in (Exporter.AUTOSCALER, Exporter.OPERATOR):
        whose = "operator" if metric.exporter is Exporter.OPERATOR else "autoscaler itself"
        raise CallError(f"{metric.name} is of the {whose}: name a metric of the agents.")
    if metric.kind is MetricType.HISTOGRAM:
        raise CallError(f"{metric.name} is a histogram, not one number: {HINT} that is one.")
    is_of_each = metric.exporter is Exporter.KEEPER or (
        metric.exporter in (Exporter.AGENT, Exporter.SERVING) and metric.unit is not MetricUnit.NONE
    )
    if metric.kind is MetricType.GAUGE and is_of_each:
        raise CallError(
            f"{metric.name} is of each node by itself, and a sum of it means nothing: give "
            "--prometheus URL, where a query says max() or min()."
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"

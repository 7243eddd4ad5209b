"""The description of one metric, without values: its name, its type, its labels."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Exporter", "MetricType", "Label", "Metric", "MetricUnit"]


class MetricType(StrEnum):
    """The type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricUnit(StrEnum):
    """The unit of a metric; always the base unit."""

    NONE = ""
    SECONDS = "seconds"
    BYTES = "bytes"


class Exporter(StrEnum):
    """The kind of process that has a metric's series; the text says where a sum is right."""

    AGENT = "every agent, of its node"
    SERVING = "every agent that serves the job; only the node of rank 0 counts, so a sum is right"
    HOLDING = "every agent that serves the job, of its own slots; the sum is the job's"
    RANK_0 = (
        "the agent of rank 0's node; where there is none, that of whoever would propose a world"
    )
    KEEPER = "the keeper of the job on each node, through the agent and in the keeper's text file"
    AUTOSCALER = "the autoscaler; only the one that leads decides, so a sum is right"
    OPERATOR = "the operator; only the one that leads acts, so a sum is right"
    WRITER = "the event writer on each node that was rank 0's, as the keeper does"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label that some metrics have."""

    name: str
    help: str
    values: tuple[str, ...] = ()
    """All values that the label can have, if the list is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """An entry of the list. A metric of a job has `job_name` as its first label."""

    name: str
    kind: MetricType
    unit: MetricUnit = MetricUnit.NONE
    help: str
    """The meaning of the metric, in one sentence."""
    labels: tuple[Label, ...] = ()
    exporter: Exporter
    bounds: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets, without the infinite one."""

"""The policy of one job's autoscaling: what a person wants, in numbers.

It stands apart from the job's spec, which never changes: a policy is changed while the job runs.
Each rule is absent (None) where the policy does not have it. All durations are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "POLICY_SCHEMA",
    "PRICE",
    "Behavior",
    "BudgetRule",
    "DeadlineRule",
    "GoodputRule",
    "IdleRule",
    "MetricKind",
    "Policy",
    "Rate",
    "RateUnit",
    "Select",
    "TargetMetric",
    "TargetRule",
]

POLICY_SCHEMA = 1
"""The newest form of a policy file that this version knows."""
PRICE = "price"
"""The name under which the price of a budget is read: no metric may have it."""


class MetricKind(StrEnum):
    """What it means that a metric is above its target."""

    LOAD = "load"
    """More than the target asks for more nodes: a queue, a lag, the use of a device."""
    SUPPLY = "supply"
    """Less than the target asks for more nodes: a throughput. The ratio is inverted."""


class RateUnit(StrEnum):
    """What a rate limits."""

    NODES = "nodes"
    PERCENT = "percent"


class Select(StrEnum):
    """Which of several rates counts, by the names of the HPA."""

    MAX = "max"
    MIN = "min"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most so much of a change within a period."""

    amount: float
    unit: RateUnit
    period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """How fast one direction may go (HPA's `behavior.scaleUp` and `scaleDown`)."""

    stabilization_s: float = 0.0
    tolerance: float | None = None
    """None: that of the rule."""
    select: Select = Select.MAX
    rates: tuple[Rate, ...] = ()
    """None of them: no limit in this direction."""


UP = Behavior(
    rates=(
        Rate(amount=100.0, unit=RateUnit.PERCENT, period_s=15.0),
        Rate(amount=4.0, unit=RateUnit.NODES, period_s=15.0),
    )
)
DOWN = Behavior(
    stabilization_s=300.0, rates=(Rate(amount=100.0, unit=RateUnit.PERCENT, period_s=15.0),)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMetric:
    """One number of Prometheus, and what it should be."""

    name: str
    """In sentences; and, without a Prometheus, the metric of the agents that is meant."""
    query: str
    """PromQL with one value; `$job` and `$window` stand for the job's name and the window."""
    target: float
    """Above 0. Of the whole job, unless `is_per_node`."""
    kind: MetricKind
    is_per_node: bool = False
    """The target is for each node (HPA's AverageValue)."""
    max_age_s: float = 60.0
    """Older samples count as missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRule:
    """The HPA's algorithm, autoscaling/v2, on any metrics."""

    metrics: tuple[TargetMetric, ...]
    tolerance: float = 0.1
    up: Behavior = UP
    down: Behavior = DOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputRule:
    """As many nodes as pay for themselves, by how long the job's own steps take at each size."""

    horizon_s: float = 1800.0
    """A change must have earned its cost within this time."""
    least_share: float = 0.5
    """The last node must add at least this part of what a node adds on average."""
    probe_s: float = 60.0
    """How long a size that was never measured is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineRule:
    """The smallest size that ends the job in time."""

    steps: int
    """Steps that the whole job makes."""
    at_unix_s: float
    """By the clock of whoever reads it: the only time here that another host's clock set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRule:
    """The largest size whose cost to the end of the job stays within the budget."""

    steps: int
    """Steps that the whole job makes."""
    node_hours: float = 0.0
    """0: the budget is in money."""
    cost: float = 0.0
    """In the currency of the price; 0: the budget is in node-hours."""
    price_query: str = ""
    """PromQL for what one node costs in an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule:
    """The least number of nodes while the job waits for its data."""

    after_s: float = 60.0
    data_share: float = 0.9
    """It waits for its data where this part of its time goes to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All rules of one job, and the limits for all of them."""

    uid: str = ""
    """Of the job's spec: a job of the same name that comes later has no policy by it."""
    version: int = POLICY_SCHEMA
    """Of the policy file's form."""
    min_nodes: int = 0
    """0: the job's own."""
    max_nodes: int = 0
    """0: the job's own."""
    window_s: float = 60.0
    """What `$window` stands for, and how much of a generation one measurement wants at least."""
    cooldown_s: float = 30.0
    """After a change of size no other one for so long."""
    max_step: int = 0
    """At most so many nodes at once; 0: any number."""
    allow_restarts: bool = False
    """Jobs whose scripts are restarted by a change may be resized."""
    is_dry_run: bool = False
    """Decisions are written down and not done."""
    target: TargetRule | None = None
    goodput: GoodputRule | None = None
    deadline: DeadlineRule | None = None
    budget: BudgetRule | None = None
    idle: IdleRule | None = None
    set_by: str = ""
    """`user@host`, as its machine says."""
    set_at_unix_s: float = 0.0
    """For people."""
    unknown: Mapping[str, object] = field(default_factory=dict)

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
"""The name under which the price of a budget is read; no metric may have it."""


class MetricKind(StrEnum):
    """The meaning of a value above the target."""

    LOAD = "load"
    """A value above the target asks for more nodes: a queue, a lag, the use of a device."""
    SUPPLY = "supply"
    """A value below the target asks for more nodes: a throughput. The ratio is inverted."""


class RateUnit(StrEnum):
    """The quantity that a rate limits."""

    NODES = "nodes"
    PERCENT = "percent"


class Select(StrEnum):
    """Which of several rates counts, by the names of the HPA."""

    MAX = "max"
    MIN = "min"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The largest change of the number of nodes within a period."""

    amount: float
    unit: RateUnit
    period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """How fast one direction may go (HPA's `behavior.scaleUp` and `scaleDown`)."""

    stabilization_s: float = 0.0
    tolerance: float | None = None
    """The tolerance; None for that of the rule."""
    select: Select = Select.MAX
    rates: tuple[Rate, ...] = ()
    """The rates; if there are none, this direction has no limit."""


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
    """One number of Prometheus, and its target."""

    name: str
    """The name for sentences; without a Prometheus, the agents' metric that is meant."""
    query: str
    """PromQL with one value; `$job` and `$window` stand for the job's name and the window."""
    target: float
    """The target, above 0. It is for the whole job, unless `is_per_node`."""
    kind: MetricKind
    is_per_node: bool = False
    """True if the target is for each node (HPA's AverageValue)."""
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
    """As many nodes as pay for themselves, by the duration of the job's own steps at each size."""

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
    """The steps that the whole job makes."""
    at_unix_s: float
    """The deadline by the reader's clock: the only time here that another host's clock set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRule:
    """The largest size whose cost to the end of the job stays within the budget."""

    steps: int
    """The steps that the whole job makes."""
    node_hours: float = 0.0
    """The budget in node-hours; 0 if it is in money."""
    cost: float = 0.0
    """The budget in the currency of the price; 0 if it is in node-hours."""
    price_query: str = ""
    """PromQL for what one node costs in an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule:
    """The least number of nodes while the job waits for its data."""

    after_s: float = 60.0
    data_share: float = 0.9
    """The job waits for its data if this part of its time goes to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All rules of one job, and the limits for all of them."""

    uid: str = ""
    """The uid of the job's spec, so that a later job of the same name does not inherit the
    policy."""
    version: int = POLICY_SCHEMA
    """The version of the policy file's form."""
    min_nodes: int = 0
    """The least nodes; 0 for the job's own."""
    max_nodes: int = 0
    """The most nodes; 0 for the job's own."""
    window_s: float = 60.0
    """What `$window` stands for, and the least part of a generation that one measurement needs."""
    cooldown_s: float = 30.0
    """How long after a change of size no other one follows."""
    max_step: int = 0
    """The most nodes that one change may add or remove; 0 for any number."""
    allow_restarts: bool = False
    """True if jobs whose scripts a change restarts may be resized."""
    is_dry_run: bool = False
    """True if decisions are written down and not carried out."""
    target: TargetRule | None = None
    goodput: GoodputRule | None = None
    deadline: DeadlineRule | None = None
    budget: BudgetRule | None = None
    idle: IdleRule | None = None
    set_by: str = ""
    """`user@host`, as its machine says."""
    set_at_unix_s: float = 0.0
    """The time when it was set, shown to people."""
    unknown: Mapping[str, object] = field(default_factory=dict)

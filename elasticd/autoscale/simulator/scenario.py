"""The events of a simulated job's life, apart from the autoscaler's actions."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum

from elasticd.autoscale.simulator.shape import Shape

__all__ = ["DataRate", "FaultKind", "JobCurve", "JobScenario", "NodeCount", "SimulatedFault"]


class FaultKind(StrEnum):
    """The kinds of faults of the metrics or the leader."""

    EMPTY = "empty"
    STALE = "stale"
    NOT_A_NUMBER = "not_a_number"
    MANY_SERIES = "many_series"
    NEGATIVE = "negative"
    HUGE = "huge"
    """The query answers with 10^300."""
    UNREACHABLE = "unreachable"
    WARNING = "warning"
    LOW_AFTER = "low_after"
    """Prometheus restarts: it has no values at first, and then averages over too little time."""
    LEADER_KILLED = "leader_killed"
    """The leader is killed before a write; the next leader reads the records, on a clock of its
    own."""
    REFUSED = "refused"
    SLOW = "slow"
    """Prometheus answers every second query in time, and the others too late."""
    CLOCK_BACK = "clock_back"
    """Prometheus' clock was put back by ten minutes: it answers with samples of that age."""
    TWO_LEADERS = "two_leaders"
    """The lead goes to a second process and back; the decisions of the deposed process have no
    effect."""


OF_LEADER = (FaultKind.LEADER_KILLED, FaultKind.TWO_LEADERS)
"""The kinds that do not change the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFault:
    """One fault, from one time of the simulation to another."""

    kind: FaultKind
    from_s: float
    until_s: float

    @property
    def handovers_s(self) -> tuple[float, ...]:
        """Return the times at which another process takes the lead, so that nothing is written."""
        match self.kind:
            case FaultKind.LEADER_KILLED:
                return (self.from_s,)
            case FaultKind.TWO_LEADERS:
                return self.from_s, self.until_s
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCurve:
    """The curve that the job has from this time on."""

    from_s: float
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCount:
    """The number of nodes that are there from this time on."""

    from_s: float
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRate:
    """The greatest rate of the data from this time on, for any number of nodes."""

    from_s: float
    steps_per_s: float
    """The rate in steps per second; infinite if no rank waits for data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScenario:
    """The scenario of one job's life."""

    name: str
    curves: tuple[JobCurve, ...]
    """The curves in the order of their times, the first at 0."""
    nodes: tuple[NodeCount, ...]
    """The numbers of nodes in the order of their times, the first at 0."""
    duration_s: float = 14_400.0
    every_s: float = 15.0
    """The seconds between two evaluations."""
    min_nodes: int = 1
    max_nodes: int = 16
    change_cost_s: float = 2.0
    """The seconds without steps at each change of the world, planned or not."""
    first_nodes: int = 0
    """The size that somebody wanted before the autoscaler began; 0 for the largest possible
    size."""
    noise_share: float = 0.02
    """The standard deviation of the throughput between two evaluations, as a part of it."""
    stall_share: float = 0.0
    """The part of the time between evaluations in which the job runs at half its speed."""
    faults: tuple[SimulatedFault, ...] = ()
    pauses: tuple[tuple[float, float], ...] = ()
    """The time spans in which the script pauses: it evaluates, and makes no steps."""
    data_rates: tuple[DataRate, ...] = ()
    """The data rates in the order of their times; before the first one no rank waits for data."""
    seed: int = 0

    def shape_at(self, at_s: float) -> Shape:
        """Return the curve at that time."""
        return self.curves[bisect_right([each.from_s for each in self.curves], at_s) - 1].shape

    def available_at(self, at_s: float) -> int:
        """Return the number of nodes that are there at that time."""
        return self.nodes[bisect_right([each.from_s for each in self.nodes], at_s) - 1].available

    def is_paused_at(self, at_s: float) -> bool:
        """Return True while the script pauses."""
        return any(from_s <= at_s < until_s for from_s, until_s in self.pauses)

    def data_rate_at(self, at_s: float) -> float:
        """Return the steps per second for which there are data at that time."""
        at = bisect_right([each.from_s for each in self.data_rates], at_s) - 1
        return self.data_rates[at].steps_per_s if at >= 0 else math.inf

    def fault_at(self, at_s: float) -> FaultKind | None:
        """Return the fault of the metrics at that time; None if there is none."""
        for fault in self.faults:
            if fault.from_s <= at_s < fault.until_s and fault.kind not in OF_LEADER:
                return fault.kind
        return None

"""The history of a simulation, to be counted and drawn."""

from dataclasses import dataclass, field
from itertools import pairwise

from elasticd.records.autoscale.decision import Decision

__all__ = ["TracePoint", "Trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePoint:
    """The state at one evaluation."""

    at_s: float
    nodes: int
    """The nodes of the world that trains; 0 if none does."""
    wanted: int
    available: int
    rate: float
    """The steps per second since the point before."""
    held: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The history of a whole simulation."""

    name: str
    points: tuple[TracePoint, ...]
    decisions: tuple[Decision, ...] = ()
    """The decisions with their outcomes; `at_unix_s` is the time of the simulation."""
    steps: float = 0.0
    node_hours: float = 0.0
    notes: tuple[str, ...] = field(default=())
    """Notes for the reader about the assumptions of the simulation, as sentences."""

    @property
    def turns(self) -> int:
        """Return how often a change of size went in the opposite direction of the one before."""
        ways = [
            each.to_nodes > each.from_nodes
            for each in self.decisions
            if each.to_nodes != each.from_nodes and not each.is_dry_run
        ]
        return sum(before != after for before, after in pairwise(ways))

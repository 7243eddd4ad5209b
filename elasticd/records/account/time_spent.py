"""Where the time of a job's slots went: what outlives the agents that counted it.

Each agent writes its own sums, and the node of rank 0 takes over those of agents that are gone: so
what stands in etcd is bounded by the nodes that the job has now, however many it has had.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.ids import Generation, NodeId

__all__ = ["JobProgress", "TimeSpent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent:
    """One agent's account of its slots, since the job's progress last took it over."""

    node: NodeId
    uid: str
    """Of the job's spec."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Slot-seconds by time cause."""
    slots: int = 0
    """Held for the job when this was written."""
    generation: Generation = Generation(0)
    """The newest that the agent had seen by then."""
    generation_s: float = 0.0
    """How long ago that was, on its own clock."""
    is_last: bool = False
    """It leaves the job in order: there is no time of its slots that nobody counted."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Of those slots, how many were held for which cause; empty where an older version wrote it."""
    is_concluded: bool = False
    """Another node wrote this, for an agent that is gone: what its slots did since its last write,
    of which `seconds` are all. Should it be back, it puts what it counted itself in this place."""
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """How far a job is; written by the node of rank 0 alone, a few times a minute."""

    uid: str
    generation: Generation = Generation(0)
    generation_s: float = 0.0
    """Age of the generation when this was written, on the writer's clock."""
    has_steps: bool = False
    """Steps are seen; else `train` in the seconds means that workers ran."""
    step: int = 0
    """Applied steps; 0: none, or not known."""
    samples: int = 0
    """In applied steps, of all ranks; 0: none, or not known."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Slot-seconds by time cause, of agents that are gone; `TimeSpent` has the others."""
    wanted_s: float = 0.0
    """Wanted slots times the time that went by, in slot-seconds."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """What the last commit was given: the first names of the alphabet, as far as there is room."""
    at_unix_s: float = 0.0
    """For people only; never compared with another host's."""
    unknown: Mapping[str, object] = field(default_factory=dict)

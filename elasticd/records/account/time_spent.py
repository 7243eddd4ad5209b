"""Where the time of a job's slots went: what outlives the agents that counted it.

Each agent writes its own sums, and the node of rank 0 takes over those of agents that are gone. So
the size in etcd is bounded by the nodes that the job has now, however many it has had.
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
    """The uid of the job's spec."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Slot-seconds by time cause."""
    slots: int = 0
    """The slots that were held for the job when this was written."""
    generation: Generation = Generation(0)
    """The newest generation that the agent had seen by then."""
    generation_s: float = 0.0
    """How long ago it saw that, on its own clock."""
    is_last: bool = False
    """True if it leaves the job in order, so that all time of its slots is counted."""
    held: Mapping[str, int] = field(default_factory=dict)
    """How many of those slots were held for which cause; empty from an older version."""
    is_concluded: bool = False
    """True if another node wrote this for an agent that is gone: what its slots did since its last
    write, of which `seconds` are all. If that agent comes back, it replaces this by what it counted
    itself."""
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """How far a job is; written by the node of rank 0 alone, a few times a minute."""

    uid: str
    generation: Generation = Generation(0)
    generation_s: float = 0.0
    """The age of the generation when this was written, on the writer's clock."""
    has_steps: bool = False
    """True if steps are seen; otherwise `train` in the seconds means that workers ran."""
    step: int = 0
    """The applied steps; 0 if there are none, or not known."""
    samples: int = 0
    """The samples in applied steps, of all ranks; 0 if there are none, or not known."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Slot-seconds by time cause, of agents that are gone; `TimeSpent` has the others."""
    wanted_s: float = 0.0
    """Wanted slots times the time that went by, in slot-seconds."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """What the last commit was given: the first names of the alphabet, as far as there is room."""
    at_unix_s: float = 0.0
    """The time for people only; never compared with another host's."""
    unknown: Mapping[str, object] = field(default_factory=dict)

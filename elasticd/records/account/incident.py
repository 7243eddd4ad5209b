"""The record of one change of world, as one node saw and measured it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Reason
from elasticd.records.world import World

__all__ = ["Incident", "PHASES", "announced"]

PHASES = (
    "detect",
    "agree",
    "stop",
    "start",
    "push",
    "abort",
    "form",
    "compare",
    "copy",
    "step",
)
"""Seconds on the node's own clock. detect: fact seen to proposal sent; agree: proposal to world
seen. Restart mode: stop: world seen to the last old worker reaped; start: to the last new worker
running, and where a script calls `elasticd.run` then, to that call; step, where the script says how
far it is: from there to the slowest worker's first step.
In-process mode, of the slowest worker here: push: world seen to the worker out of the generation
before, less abort: closing its group; form: the new one; compare: who has the newest state; copy:
to those without it; step: to the first commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    generation: Generation
    """The generation that began with this change."""
    node: NodeId
    host: str
    reason: Reason
    culprit: Failure | None = None
    """Only the nodes of the first three ranks write it, like `lost`: it is the same for all of
    them."""
    lost: tuple[NodeId, ...] = ()
    world_size: int = 0
    nodes: int = 0
    phases_s: Mapping[str, float] = field(default_factory=dict)
    unnoticed_s: float = 0.0
    """For how long no step had ended here when the change was noticed, beyond a step's own time; 0
    for less than a second, if it was planned, in a pause, and if it is not known."""
    step: int | None = None
    """The steps applied when the generation had made its first; None if not seen (restart mode,
    where the script reports none)."""
    lost_steps: int = 0
    received_bytes: int = 0
    """The bytes of state that came from other ranks to this node's workers."""
    restored_from: str = ""
    """Where a state that no rank had came from: ranks, memory or storage."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Slot-seconds of this node's slots by time cause, from its last commit before the change to
    the first one after it; empty from an older version."""
    note: str = ""
    is_announced: bool = False
    """True if its proposer wrote it with the world, before anybody had arrived: nothing was
    measured."""
    at_unix_s: float = 0.0
    """The time for people only; never compared with another host's."""
    unknown: Mapping[str, object] = field(default_factory=dict)


def announced(world: World) -> Incident:
    """Return the incident of a generation as far as it is known at the beginning.

    It stands in the proposer's place until that has arrived itself and writes more. So no
    generation is missing, even if nobody arrives before the next one.
    """
    return Incident(
        generation=world.generation,
        node=world.proposer,
        host=world.proposer,
        reason=world.reason,
        culprit=world.culprit,
        lost=world.lost,
        world_size=world.size,
        nodes=len(world.nodes),
        note=world.note,
        is_announced=True,
    )

"""The record of one change of world, as one node saw and measured it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, NodeId
from elasticd.records.reason import Reason

__all__ = ["Incident", "PHASES"]

PHASES = ("detect", "agree", "stop", "start")
"""detect: fact seen to proposal sent; agree: proposal to world seen; stop: world seen to the last
old worker reaped; start: to the last new worker running. Seconds on the node's own clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    generation: Generation
    """The one that began with this change."""
    node: NodeId
    host: str
    reason: Reason
    culprit: Failure | None = None
    lost: tuple[NodeId, ...] = ()
    world_size: int = 0
    nodes: int = 0
    phases_s: Mapping[str, float] = field(default_factory=dict)
    at_unix_s: float = 0.0
    """For people only; never compared with another host's."""
    unknown: Mapping[str, object] = field(default_factory=dict)

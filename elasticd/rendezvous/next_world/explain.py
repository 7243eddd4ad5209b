"""Explains a change of world in one sentence for people."""

from collections.abc import Mapping

from elasticd.records.ids import NodeId, names
from elasticd.records.reason import Reason

__all__ = ["without"]

_WORDS = {
    Reason.NODE_LOST: "whose lease ran out",
    Reason.NODE_DEAD: "whose agent died",
    Reason.NODE_LEFT: "which said goodbye",
    Reason.NODE_RETURNED: "whose agent was started anew",
    Reason.DID_NOT_ARRIVE: "which did not arrive",
    Reason.DRAINED: "which was drained",
    Reason.PREEMPTED: "which was preempted",
    Reason.STOP_REQUESTED: "whose agent ends",
}


def without(lost: Mapping[NodeId, Reason]) -> str:
    """Return which nodes a world goes on without, and why; empty if none is missing."""
    by_reason: dict[Reason, list[NodeId]] = {}
    for node, reason in lost.items():
        by_reason.setdefault(reason, []).append(node)
    parts = [
        f"{names(nodes)}, {_WORDS.get(reason, f'lost by {reason}')}"
        for reason, nodes in by_reason.items()
    ]
    return "without " + "; without ".join(parts) if parts else ""

"""Which nodes are left out of a world, how often in a row, and how long each then stays away."""

from collections.abc import Mapping, Sequence

from elasticd.records.ids import Generation, NodeId, names
from elasticd.records.reason import Reason
from elasticd.records.world import Exclusion, WorldNode
from elasticd.rendezvous.next_world.change import WorldChange
from elasticd.rendezvous.state import JobState

__all__ = ["READMISSION_BASE_S", "exclusions", "readmission_delay_s", "without"]

READMISSION_BASE_S = 1.0
_READMISSION_MOST_S = 60.0
_READMISSION_MOST_PREPARED_S = 1.0
"""The longest wait of a node whose join is cheap: a join that costs less than a tenth of a second
may happen more often than one that restarts everybody. A node that is lost every five seconds then
costs some hundredths of the others' time."""
_STEADY_S = 60.0
"""A world that stood this long clears the record of the nodes in it."""
_EXCLUSIONS_KEPT = 256
"""How many exclusions of past incarnations are kept: only how often their nodes were lost still
matters."""

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
"""How a node was lost, as the rest of a sentence that begins with its name."""


def readmission_delay_s(losses: int, *, is_in_process: bool = False) -> float:
    """Return how long a node that was lost this often in a row waits before it is taken
    in again.
    """
    if losses < 2:
        return 0.0
    most_s = _READMISSION_MOST_PREPARED_S if is_in_process else _READMISSION_MOST_S
    return min(most_s, READMISSION_BASE_S * 2.0 ** min(losses - 2, 16))


def exclusions(
    state: JobState,
    change: WorldChange,
    nodes: Sequence[WorldNode],
    generation: Generation,
    now_s: float,
) -> tuple[Exclusion, ...]:
    """Return which nodes were left out and how often; a node that stood through a steady world is
    forgotten.
    """
    previous = state.world
    if previous is None:
        return ()
    kept = {e.node: e for e in previous.excluded}
    if state.formed_s is not None and now_s - state.formed_s >= _STEADY_S:
        for node in previous.nodes:
            kept.pop(node.node, None)
    inside = {(n.node, n.incarnation) for n in nodes}
    for node in previous.nodes:
        if (node.node, node.incarnation) in inside or node.node not in change.lost:
            continue
        before, reason = kept.get(node.node), change.lost[node.node]
        is_counted = not reason.is_planned and reason is not Reason.NODE_LEFT
        kept[node.node] = Exclusion(
            node=node.node,
            incarnation=node.incarnation,
            reason=reason,
            generation=generation,
            losses=(before.losses if before is not None else 0) + int(is_counted),
        )
    in_order = sorted(kept.values(), key=lambda e: (e.generation, e.node))
    # Rule 6: as long as such an incarnation could come back, its exclusion stands, however many
    # were lost at once.
    over = [e for e in in_order if e.generation != generation and not _is_here(state, e)]
    forgotten = {e.node for e in over[:-_EXCLUSIONS_KEPT]}
    return tuple(e for e in in_order if e.node not in forgotten)


def _is_here(state: JobState, exclusion: Exclusion) -> bool:
    seen = state.members.get(exclusion.node)
    return seen is not None and seen.member.incarnation == exclusion.incarnation


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

"""Whether the standing world still fits the facts, and if not, for which reason above all."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.failure import Failure
from elasticd.records.ids import Incarnation, NodeId
from elasticd.records.member import Member
from elasticd.records.reason import Reason
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.state import JobState, SeenMember

__all__ = [
    "Change",
    "change_of_node",
    "find_change",
    "has_ended",
    "is_candidate",
    "is_finished",
]

_GRAVITY = (
    Reason.WORKER_FAILED,
    Reason.WORKER_KILLED,
    Reason.NODE_DEAD,
    Reason.NODE_LOST,
    Reason.NODE_RETURNED,
    Reason.DID_NOT_ARRIVE,
    Reason.COLLECTIVE_BROKEN,
    Reason.PREEMPTED,
    Reason.NODE_LEFT,
    Reason.DRAINED,
    Reason.SCALED,
    Reason.JOINED,
)
"""When several things happened, the gravest names the change: a node that died explains a broken
collective, a failure explains why somebody left."""


_OF_WORKERS = frozenset({Reason.WORKER_FAILED, Reason.WORKER_KILLED, Reason.COLLECTIVE_BROKEN})
"""The node itself is well and can be in the next world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Why the next world is needed."""

    reason: Reason
    culprit: Failure | None = None
    lost: Mapping[NodeId, Reason] = field(default_factory=dict)
    """Nodes that were in the standing world and may not be in the next one, and why."""


def find_change(state: JobState, target: int, is_late: bool) -> Change | None:
    """Compare the world with the members; None if it may stand. Costs one pass over both.

    `target` is the wished number of nodes; `is_late` says that the formation's deadline passed.
    """
    world = state.world
    if world is None:
        return Change(reason=Reason.FIRST_WORLD)
    found: list[tuple[Reason, Failure | None]] = []
    lost: dict[NodeId, Reason] = {}
    is_late = is_late and not state.is_world_ended  # Nobody is to arrive there any more.
    for node in world.nodes:
        reason, failure = change_of_node(state, world, node, is_late=is_late)
        if reason is None:
            continue
        found.append((reason, failure))
        if reason not in _OF_WORKERS:
            lost[node.node] = reason
    if state.is_world_ended and state.status is not None:
        # Declared over for want of members: whoever is here now may go on. It keeps the reason
        # that it ended for; that its workers are gone by now is no news.
        return Change(reason=state.status.reason, culprit=state.status.failure, lost=lost)
    if state.ok_ranks == 0:
        # A world whose ranks have begun to finish is not changed for its size.
        if len(world.nodes) > target:
            found.append((Reason.SCALED, None))
        elif len(world.nodes) < target and _has_newcomer(state, world):
            found.append((Reason.JOINED, None))
    if not found:
        return None
    reason = min((r for r, _ in found), key=_GRAVITY.index)
    culprits = [failure for r, failure in found if r is reason and failure is not None]
    return Change(
        reason=reason,
        culprit=min(culprits, key=lambda f: f.rank) if culprits else None,
        lost=lost,
    )


def change_of_node(
    state: JobState, world: World, node: WorldNode, *, is_late: bool
) -> tuple[Reason | None, Failure | None]:
    """What happened to one node of the world; (None, None) if it is as it should be."""
    if is_finished(state, world, node):
        return None, None
    seen = state.members.get(node.node)
    if _has_left(state, node):
        return Reason.NODE_LEFT, None
    if _is_dead(state, node.node, node.incarnation):
        return Reason.NODE_DEAD, None
    if seen is None:
        return Reason.NODE_LOST, None
    member = seen.member
    if member.incarnation != node.incarnation:
        return Reason.NODE_RETURNED, None
    if member.leaving is not None:
        return member.leaving, None
    if _has_lost_worker(node, member):
        failure = member.failure
        if failure is not None and failure.generation == world.generation:
            return failure.reason, failure
        return Reason.WORKER_KILLED, None
    if is_late and member.arrived < world.generation:
        return Reason.DID_NOT_ARRIVE, None
    return None, None


def is_finished(state: JobState, world: World, node: WorldNode) -> bool:
    """All of the node's ranks exited with 0 in this generation: a fact, never a loss."""
    result = state.results.get(node.node)
    return (
        result is not None
        and result.generation == world.generation
        and result.incarnation == node.incarnation
        and sum(exit_.code == 0 for exit_ in result.exits) == len(node.workers)
    )


def has_ended(state: JobState, world: World, node: WorldNode) -> bool:
    """It is proved that no worker of this node's part in the world can go on with it."""
    seen = state.members.get(node.node)
    return (
        is_finished(state, world, node)
        or _has_left(state, node)
        or _is_dead(state, node.node, node.incarnation)
        # An agent comes back, or takes up another incarnation, when its old workers are gone.
        or (seen is not None and seen.member.incarnation != node.incarnation)
        or (seen is not None and _are_replaced(node, seen.member))
    )


def is_candidate(state: JobState, seen: SeenMember) -> bool:
    """True if the member may be in the next world at all."""
    member = seen.member
    return (
        bool(member.slots)
        and member.leaving is None
        and not _is_dead(state, member.node, member.incarnation)
        and not (
            state.world is not None and state.world.is_excluded(member.node, member.incarnation)
        )
    )


def _has_left(state: JobState, node: WorldNode) -> bool:
    result = state.results.get(node.node)
    return result is not None and result.has_left and result.incarnation == node.incarnation


def _is_dead(state: JobState, node: NodeId, incarnation: Incarnation) -> bool:
    return state.dead.get(node) == incarnation


def _has_lost_worker(node: WorldNode, member: Member) -> bool:
    """The member offers a later process for a slot, or the slot no more."""
    offered = {offer.slot: offer.nonce for offer in member.slots}
    return any(
        worker.slot not in offered or offered[worker.slot] > worker.nonce for worker in node.workers
    )


def _are_replaced(node: WorldNode, member: Member) -> bool:
    """Each slot is offered for a later process: a slot keeps its number while its worker lives."""
    offered = {offer.slot: offer.nonce for offer in member.slots}
    return all(offered.get(worker.slot, 0) > worker.nonce for worker in node.workers)


def _has_newcomer(state: JobState, world: World) -> bool:
    return any(
        world.node(seen.member.node) is None and is_candidate(state, seen)
        for seen in state.members.values()
    )

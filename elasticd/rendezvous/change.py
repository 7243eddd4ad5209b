"""Whether the standing world still fits the facts, and if not, for which reason above all."""

from dataclasses import dataclass

from elasticd.records.failure import Failure
from elasticd.records.ids import Incarnation, NodeId
from elasticd.records.member import Member
from elasticd.records.reason import Reason
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.state import JobState, SeenMember

__all__ = ["Change", "change_of_node", "find_change", "is_candidate", "is_finished"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Why the next world is needed."""

    reason: Reason
    culprit: Failure | None = None
    lost: tuple[NodeId, ...] = ()
    """Nodes that may not be in it, with their incarnations' end proved or presumed."""


def find_change(state: JobState, target: int, is_late: bool) -> Change | None:
    """Compare the world with the members; None if it may stand. Costs one pass over both.

    `target` is the wished number of nodes; `is_late` says that the formation's deadline passed.
    """
    world = state.world
    if world is None:
        return Change(reason=Reason.FIRST_WORLD)
    found: list[tuple[Reason, Failure | None]] = []
    lost = []
    for node in world.nodes:
        reason, failure = change_of_node(state, world, node, is_late=is_late)
        if reason is None:
            continue
        found.append((reason, failure))
        if failure is None:
            lost.append(node.node)
    if len(world.nodes) > target:
        found.append((Reason.SCALED, None))
    elif len(world.nodes) < target and _has_newcomer(state, world):
        found.append((Reason.JOINED, None))
    if not found:
        # Declared over for want of members: whoever is here now may go on.
        return Change(reason=Reason.JOINED) if state.is_world_ended else None
    reason = min((r for r, _ in found), key=_GRAVITY.index)
    culprits = [failure for r, failure in found if r is reason and failure is not None]
    return Change(
        reason=reason,
        culprit=min(culprits, key=lambda f: f.rank) if culprits else None,
        lost=tuple(lost),
    )


def change_of_node(
    state: JobState, world: World, node: WorldNode, *, is_late: bool
) -> tuple[Reason | None, Failure | None]:
    """What happened to one node of the world; (None, None) if it is as it should be."""
    if is_finished(state, world, node):
        return None, None
    seen = state.members.get(node.node)
    result = state.results.get(node.node)
    if seen is None:
        has_left = result is not None and result.has_left
        if has_left and result is not None and result.incarnation == node.incarnation:
            return Reason.NODE_LEFT, None
        return Reason.NODE_LOST, None
    member = seen.member
    if member.incarnation != node.incarnation:
        return Reason.NODE_RETURNED, None
    if state.dead.get(node.node) == node.incarnation:
        return Reason.NODE_DEAD, None
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


def _is_dead(state: JobState, node: NodeId, incarnation: Incarnation) -> bool:
    return state.dead.get(node) == incarnation


def _has_lost_worker(node: WorldNode, member: Member) -> bool:
    """The member offers a later process for a slot, or the slot no more."""
    offered = {offer.slot: offer.nonce for offer in member.slots}
    return any(
        worker.slot not in offered or offered[worker.slot] > worker.nonce for worker in node.workers
    )


def _has_newcomer(state: JobState, world: World) -> bool:
    return any(
        world.node(seen.member.node) is None and is_candidate(state, seen)
        for seen in state.members.values()
    )

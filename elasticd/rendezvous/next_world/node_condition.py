"""The condition of one node's part in the world, as far as its records say."""

from elasticd.records.ids import Incarnation, NodeId, life_of
from elasticd.records.member import Member, SlotOffer
from elasticd.records.reason import Reason
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.state import JobState

__all__ = [
    "has_ended",
    "has_left",
    "has_lost_worker",
    "has_state",
    "is_dead",
    "is_finished",
    "is_found_dead",
    "is_going",
    "is_same_life",
    "is_silent",
    "is_useless",
    "is_world_missed",
    "may_come_back",
]

_SILENT_BACKEND = "nccl"
"""Part of torch's name for a backend (RCCL has it too) whose collectives raise nothing when another
rank is gone: the rank waits on its device until it is told of the next world."""

_COMES_BACK = (Reason.NODE_LOST, Reason.CUT_OFF, Reason.DID_NOT_ARRIVE)
"""Reasons for which a node was left out without being seen to end."""


def is_finished(state: JobState, world: World, node: WorldNode) -> bool:
    """Return whether all of the node's ranks exited with 0 in this generation: a fact, never a
    loss.
    """
    result = state.results.get(node.node)
    return (
        result is not None
        and result.generation == world.generation
        and result.incarnation == node.incarnation
        and sum(exit_.code == 0 for exit_ in result.exits) == len(node.workers)
    )


def has_ended(state: JobState, world: World, node: WorldNode) -> bool:
    """Return whether it is certain that no worker of this node's part can go on in the world."""
    if is_finished(state, world, node) or has_left(state, node):
        return True
    if is_dead(state, node.incarnation):
        return True
    seen = state.members.get(node.node)
    if seen is None or not is_same_life(node, seen.member):
        return False
    return (
        # An agent takes up another incarnation when the workers of the one before are gone.
        seen.member.incarnation != node.incarnation
        or _are_replaced(node, seen.member)
        or seen.member.left == world.generation
    )


def is_same_life(node: WorldNode, member: Member) -> bool:
    """Return whether the member's agent is the very process that the world names.

    Another one under the node's name proves nothing: the first may be stopped, or cut off, on this
    machine or on another, with its workers running.
    """
    return life_of(member.incarnation) == life_of(node.incarnation)


def is_going(state: JobState, node: WorldNode, reason: Reason) -> bool:
    """Return whether the node asked to leave, and trains on until the world goes on without it."""
    seen = state.members.get(node.node)
    return (
        seen is not None
        and seen.member.incarnation == node.incarnation
        and seen.member.leaving is reason
        and not has_lost_worker(node, seen.member)
        and not is_dead(state, node.incarnation)
    )


def is_useless(member: Member) -> bool:
    """Return whether every slot of the member was given up: it starts no process any more."""
    return bool(member.slots) and {offer.slot for offer in member.slots} <= set(member.given_up)


def may_come_back(state: JobState) -> bool:
    """Return whether a node lost its lease, or was left out: its agent may live, and its workers
    train on.
    """
    world = state.world
    if world is None:
        return False
    gone = (node for node in world.nodes if node.node not in state.members)
    return any(
        not has_left(state, node) and not is_dead(state, node.incarnation) for node in gone
    ) or any(e.reason in _COMES_BACK and e.node not in state.members for e in world.excluded)


def has_left(state: JobState, node: WorldNode) -> bool:
    result = state.results.get(node.node)
    return result is not None and result.has_left and result.incarnation == node.incarnation


def is_dead(state: JobState, incarnation: Incarnation) -> bool:
    return incarnation in state.dead


def is_found_dead(state: JobState, name: NodeId) -> bool:
    """Return whether the newest known life of the node was found dead, and no other has
    come since.
    """
    if name == state.me.node:
        return is_dead(state, state.me.incarnation)
    seen = state.members.get(name)
    if seen is not None:
        return is_dead(state, seen.member.incarnation)
    node = state.world.node(name) if state.world is not None else None
    return node is not None and is_dead(state, node.incarnation)


def is_world_missed(state: JobState) -> bool:
    """Return whether the status is of a later world than the newest that was seen: they are written
    together.
    """
    known = state.world.generation if state.world is not None else 0
    return state.status is not None and state.status.generation > known


def has_lost_worker(node: WorldNode, member: Member) -> bool:
    """Return whether the member offers a later process for a slot, or the slot no more."""
    offered = {offer.slot: offer.nonce for offer in member.slots}
    return any(
        worker.slot not in offered or offered[worker.slot] > worker.nonce for worker in node.workers
    )


def is_silent(state: JobState, world: World, node: WorldNode) -> bool:
    """Return whether a rank there, which may have broken the collective of others, told nothing.

    Whoever raises leaves its group first and is reported later, by its own agent. Of a rank that
    lives and took part over Gloo no word is missing for long: its next collective breaks too. Over
    NCCL it does not, so nothing is to be expected there. Who has said that it leaves or has
    finished has told enough.
    """
    seen = state.members.get(node.node)
    if seen is None or seen.member.incarnation != node.incarnation:
        return False
    member = seen.member
    has_told = member.broken >= world.generation and not member.is_partly_broken
    if has_told or member.is_paused or is_dead(state, node.incarnation):
        return False
    if member.leaving is not None or any(offer.is_finished for offer in member.slots):
        return False
    if has_lost_worker(node, member) or is_finished(state, world, node):
        return False
    return _SILENT_BACKEND not in member.backend


def has_state(state: JobState, member: Member, offer: SlotOffer) -> bool:
    """Return whether the offered process has the job's state, by its record or because ours formed
    a group with it.

    While etcd is away a record is behind, and a world made from it would begin from nothing.
    """
    node = state.formed_world.node(member.node) if state.formed_world is not None else None
    if offer.has_state or node is None or node.incarnation != member.incarnation:
        return offer.has_state
    return (offer.slot, offer.nonce) in {(worker.slot, worker.nonce) for worker in node.workers}


def _are_replaced(node: WorldNode, member: Member) -> bool:
    """Return whether each slot is offered for a later process: a slot keeps its number while its
    worker lives.
    """
    offered = {offer.slot: offer.nonce for offer in member.slots}
    return all(offered.get(worker.slot, 0) > worker.nonce for worker in node.workers)

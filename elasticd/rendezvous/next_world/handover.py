"""Which node hands the state over before it leaves in order, and to which (in-process mode).

A drained node trains on until the world goes on without it. If no node that stays has the state,
the next world has both, those that leave and those that come, for the step or two in which the
state is copied; it may be larger than MAX for that. While those that come are still being prepared,
the standing world goes on.
"""

from collections.abc import Sequence

from elasticd.records.ids import NodeId, Slot
from elasticd.records.member import SlotOffer
from elasticd.records.reason import Reason
from elasticd.records.world import World, WorldNode, WorldWorker
from elasticd.rendezvous.next_world.change import WorldChange, offers_in, offers_of, offers_state
from elasticd.rendezvous.next_world.node_condition import is_dead, is_useless
from elasticd.rendezvous.state import JobState, SeenMember

__all__ = [
    "awaited",
    "handover_end_s",
    "handover_until_s",
    "keeps_state",
    "new_slots",
    "state_sources",
    "unheard",
    "unheard_until_s",
]

HANDOVER_SHARE = 0.5
"""The share of its time to leave for which a node that goes by itself waits for another to be
prepared: what is left is for the copy, and for its own end."""


def state_sources(
    state: JobState, change: WorldChange, chosen: Sequence[SeenMember]
) -> tuple[SeenMember, ...]:
    """Return the leaving nodes that must hand over the state first, because no node that stays has
    it.
    """
    world = state.world
    if world is None or not state.is_in_process or not chosen:
        return ()
    if state.is_world_ended:
        return _keepers(state, change, world, chosen)
    if not change.is_orderly or any(world.has(s.member.node, s.member.incarnation) for s in chosen):
        return ()
    seen = (state.members.get(node.node) for node in world.nodes)
    going = [s for s in seen if s is not None and s.member.leaving is not None]
    return tuple(s for s in going if offers_in(state, change, s.member))


def awaited(state: JobState, change: WorldChange) -> tuple[NodeId, ...]:
    """Return the nodes that will be able to take the state over soon."""
    world = state.world
    if world is None or not state.is_in_process or not change.is_orderly or state.is_world_ended:
        return ()
    return tuple(
        seen.member.node
        for seen in state.members.values()
        if seen.member.leaving is None
        and seen.member.failure is None
        and not offers_of(state, seen.member)
        and not is_useless(seen.member)
        and not is_dead(state, seen.member.incarnation)
    )


def _keepers(
    state: JobState, change: WorldChange, world: World, chosen: Sequence[SeenMember]
) -> tuple[SeenMember, ...]:
    """Return the leaving nodes that kept the state while the job waited, if nobody else has it."""
    if any(offers_state(state, change, s.member) for s in chosen):
        return ()
    seen = (state.members.get(node.node) for node in world.nodes)
    going = (s for s in seen if s is not None and s.member.leaving is not None)
    return tuple(s for s in going if offers_state(state, change, s.member))


def handover_until_s(state: JobState, change: WorldChange, now_s: float) -> float | None:
    """Return until when the standing world goes on for the handover; None means without a limit.

    A drain leaves time. A machine that goes by itself leaves a part of its grace; and none where
    the job has checkpoints, since the last save then costs less than the wait.
    """
    if change.reason is Reason.DRAINED:
        return None
    if state.spec.checkpoint is not None:
        return now_s
    end_s = handover_end_s(state)
    return end_s if end_s is not None else now_s + HANDOVER_SHARE * state.spec.shutdown_timeout_s


def handover_end_s(state: JobState) -> float | None:
    """Return when a node that goes by itself gives up; None if none has been waited for yet."""
    if state.handover_s is None:
        return None
    return state.handover_s + HANDOVER_SHARE * state.spec.shutdown_timeout_s


def keeps_state(state: JobState, now_s: float) -> bool:
    """Return whether this node, which is to leave a job that waits for nodes, stays for a while.

    It alone has the state, which is saved nowhere, and others are about to come for it.
    """
    if not (state.is_in_process and state.is_world_ended and state.is_in_world):
        return False
    if state.observed is not None or state.leaving is None or state.spec.checkpoint is not None:
        return False
    end_s = handover_end_s(state)
    if state.leaving is not Reason.DRAINED and not (end_s is not None and now_s < end_s):
        return False
    if not any(worker.has_state and worker.is_attached for worker in state.workers.values()):
        return False
    others = [s.member for s in state.members.values() if s.member.node != state.me.node]
    coming = [m for m in others if m.leaving is None and not is_dead(state, m.incarnation)]
    if any(offer.has_state for member in coming for offer in member.slots):
        return False
    return any(member.failure is None and not is_useless(member) for member in coming)


def unheard(
    state: JobState, change: WorldChange, chosen: Sequence[SeenMember], now_s: float
) -> tuple[NodeId, ...]:
    """Return the nodes whose processes may have the state although their records do not say so yet.

    The first world names processes that are being started. If etcd is slow for their agent, its
    record says so long after they train; other nodes would begin from nothing. Nobody waits longer
    than `unheard_until_s`: such a process may also never start.
    """
    world = state.world
    if world is None or not state.is_in_process or now_s >= unheard_until_s(state, now_s):
        return ()
    is_rich = any(offers_state(state, change, seen.member) for seen in chosen)
    if is_rich and not change.is_orderly:
        return ()
    lost = change.culprit
    if lost is not None and lost.generation == world.generation and not lost.step:
        return ()  # One that never made a step: nor did the others.
    return tuple(node.node for node in world.nodes if _is_unheard(state, node))


def unheard_until_s(state: JobState, now_s: float) -> float:
    """Return how long to wait for the records of processes that may have the state.

    It is as long as the world may take to form, and as long again from when their record is missed:
    until then etcd may have been slow for their agents, or for ours.
    """
    if state.formation_deadline_s is None:
        return now_s
    since_s = state.unheard_s if state.unheard_s is not None else now_s
    return max(state.formation_deadline_s, since_s + state.spec.formation_timeout_s)


def _is_unheard(state: JobState, node: WorldNode) -> bool:
    seen = state.members.get(node.node)
    if seen is None or seen.member.incarnation != node.incarnation:
        return False
    member = seen.member
    if is_dead(state, node.incarnation) or is_useless(member) or member.leaving is not None:
        return False
    offers = {offer.slot: offer for offer in member.slots}
    named = [worker for worker in node.workers if worker.slot not in member.given_up]
    return any(_is_older(offers.get(worker.slot), worker) for worker in named)


def _is_older(offer: SlotOffer | None, worker: WorldWorker) -> bool:
    """Return whether the record is of a time before the named process could train."""
    if offer is None or offer.nonce < worker.nonce:
        return True
    return offer.nonce == worker.nonce and not (offer.is_prepared or offer.is_finished)


def new_slots(
    state: JobState, previous: WorldNode, workers: Sequence[WorldWorker]
) -> tuple[Slot, ...]:
    """Return the slots whose process has trained in no world of the line that goes on."""
    if not state.is_in_process or state.world is None:
        return ()  # Each process is new to its world.
    known = {(worker.slot, worker.nonce) for worker in previous.workers}
    if not _has_formed(state, state.world):
        is_new_node = previous.since == state.world.generation
        known = set() if is_new_node else {w for w in known if w[0] not in previous.new_slots}
    return tuple(w.slot for w in workers if (w.slot, w.nonce) not in known)


def _has_formed(state: JobState, world: World) -> bool:
    """Return whether its processes trained together; an agent that was started anew did not see
    that.

    Processes that wait in `elasticd.run` arrive with all the others or not at all, so one node that
    reports it speaks for all.
    """
    if state.formed_s is not None or world.restarts == 0:
        return True
    if any(result.trained_in == world.generation for result in state.results.values()):
        return True
    return any(_has_arrived(state, world, node) for node in world.nodes)


def _has_arrived(state: JobState, world: World, node: WorldNode) -> bool:
    seen = state.members.get(node.node)
    if seen is None or seen.member.arrived != world.generation:
        return False
    # The node of rank 0 also says so of a world whose store it refused, which nobody entered.
    return node.first_rank != 0 or seen.member.broken != world.generation

"""What this node should say of itself, derived from its state and never stored twice."""

import dataclasses

from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.member import Member, Result, SlotOffer
from elasticd.records.world import WorldNode
from elasticd.rendezvous.state import JobState, Stage, WorkerStage

__all__ = [
    "desired_generation",
    "desired_member",
    "desired_result",
    "is_current",
    "is_forming",
    "is_news",
    "my_node",
]


def desired_generation(state: JobState) -> Generation | None:
    """The generation whose workers should run here; None: no worker should."""
    if state.world is None or state.is_over or state.is_world_ended or not state.is_in_world:
        return None
    if state.stage in (Stage.WITHDRAWING, Stage.VOID, Stage.RETIRED):
        return None
    return state.world.generation


def my_node(state: JobState) -> WorldNode | None:
    """This incarnation's part of the world."""
    if state.world is None or not state.is_in_world:
        return None
    return state.world.node(state.me.node)


def is_forming(state: JobState) -> bool:
    """A world wants us and we have not arrived in it yet."""
    generation = desired_generation(state)
    return generation is not None and state.adopted_arrival != generation


def is_current(state: JobState) -> bool:
    """The generation that we adopted is the one that should run."""
    return state.adopted == desired_generation(state)


def desired_member(state: JobState) -> Member:
    """Our member record as it should stand in etcd now."""
    return Member(
        node=state.me.node,
        incarnation=state.me.incarnation,
        host=state.me.host,
        address=state.me.address,
        port=state.me.port,
        slots=tuple(SlotOffer(slot=slot, nonce=_offered_nonce(state, slot)) for slot in state.slots)
        if state.is_pool_ready
        else (),
        stores=state.stores,
        arrived=state.adopted_arrival,
        leaving=state.leaving,
        failure=state.failure,
    )


def is_news(member: Member, sent: Member | None) -> bool:
    """True if our record is worth a write.

    Stores alone are not: nobody needs them before we can start workers, or while one of those that
    we named is left. The next record takes them along.
    """
    if sent is None:
        return True
    if member != dataclasses.replace(sent, stores=member.stores):
        return True
    is_enough = not member.slots or any(store in member.stores for store in sent.stores)
    return member.stores != sent.stores and not is_enough


def desired_result(state: JobState, *, has_left: bool = False) -> Result:
    return Result(
        node=state.me.node,
        incarnation=state.me.incarnation,
        generation=state.adopted,
        exits=state.exits,
        has_left=has_left,
    )


def _offered_nonce(state: JobState, slot: Slot) -> Nonce:
    """A slot keeps its number while its worker lives, and after exit 0 while the world stands."""
    last = state.nonces.get(slot, Nonce(0))
    worker = state.workers.get(slot)
    if worker is not None:
        return last if worker.stage is not WorkerStage.FAILED else Nonce(last + 1)
    if desired_generation(state) is None:
        # The world is over, and a process of it that was not started by now never will be.
        return Nonce(max(last, _named_nonce(state, slot)) + 1)
    if is_current(state) and _has_finished(state, slot):
        return last
    return Nonce(last + 1)


def _named_nonce(state: JobState, slot: Slot) -> Nonce:
    node = my_node(state)
    workers = node.workers if node is not None else ()
    return next((worker.nonce for worker in workers if worker.slot == slot), Nonce(0))


def _has_finished(state: JobState, slot: Slot) -> bool:
    node = my_node(state)
    if node is None:
        return False
    ok = {exit_.rank for exit_ in state.exits if exit_.code == 0}
    return any(
        worker.slot == slot and node.first_rank + index in ok
        for index, worker in enumerate(node.workers)
    )

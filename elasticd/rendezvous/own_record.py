"""This node's record, derived from its state and never stored twice."""

import dataclasses

from elasticd.records.ids import Generation, Nonce, Slot
from elasticd.records.member import Member, Result, SlotOffer, Stall, StallLimit
from elasticd.records.world import WorldNode
from elasticd.rendezvous.state import JobState, Stage, Worker, WorkerStage

__all__ = [
    "desired_generation",
    "desired_member",
    "desired_result",
    "is_current",
    "is_forming",
    "is_news",
    "is_shut_out",
    "is_working",
    "my_node",
    "next_nonce",
]


def desired_generation(state: JobState) -> Generation | None:
    """Return the generation whose workers should run here; None if no worker should."""
    if state.world is None or state.is_over or state.is_world_ended or not state.is_in_world:
        return None
    if state.stage in (Stage.WITHDRAWING, Stage.VOID, Stage.RETIRED):
        return None
    return state.world.generation


def my_node(state: JobState) -> WorldNode | None:
    """Return this incarnation's part of the world."""
    if state.world is None or not state.is_in_world:
        return None
    return state.world.node(state.me.node)


def is_forming(state: JobState) -> bool:
    """Return whether a world wants us and we have not arrived in it yet."""
    generation = desired_generation(state)
    return generation is not None and state.adopted_arrival != generation


def is_current(state: JobState) -> bool:
    """Return whether the generation that we adopted is the one that should run."""
    return state.adopted == desired_generation(state)


def desired_member(state: JobState) -> Member:
    """Return our member record as it should stand in etcd now."""
    stall = _stall(state)
    is_long = stall is not None and stall.limit is StallLimit.PROGRESS
    return Member(
        node=state.me.node,
        incarnation=state.me.incarnation,
        host=state.me.host,
        address=state.me.address,
        port=state.me.port,
        slots=tuple(o for slot in state.slots if (o := _offer(state, slot)) is not None)
        if state.is_pool_ready
        else (),
        stores=state.stores,
        arrived=state.adopted_arrival,
        leaving=state.leaving,
        failure=state.failure,
        raised_alike=state.raised_alike,
        broken=state.broken,
        is_partly_broken=any(_is_silent(state, worker) for worker in state.workers.values()),
        backend=next((w.backend for w in state.workers.values() if w.backend), ""),
        cut_off=state.cut_off,
        left=_left(state),
        stall=stall if is_long else None,
        short_stall=None if is_long else stall,
        is_paused=any(worker.is_paused for worker in state.workers.values()),
        wait=state.wait,
        given_up=tuple(sorted(s for s, m in state.slot_failures.items() if m.is_left_out)),
    )


def is_news(member: Member, sent: Member | None) -> bool:
    """Return whether our record is worth a write.

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
        # If another job has this name by now, the exit codes would count for that one.
        exits=() if state.is_replaced else state.exits,
        has_left=has_left,
        training=None if state.is_replaced else state.training,
        trained_in=state.trained_in,
    )


def is_shut_out(state: JobState) -> bool:
    return state.world is not None and state.world.is_excluded(state.me.node, state.me.incarnation)


def is_working(state: JobState) -> bool:
    """Return whether a world counts on this node, or workers of one are still here.

    A prepared worker that waits to be named does not count: it could wait elsewhere just as well.
    """
    if state.is_in_world and not state.is_over:
        return True
    return any(worker.generation or worker.entered for worker in state.workers.values())


def next_nonce(state: JobState, slot: Slot) -> Nonce:
    """Return the number of the next process in this slot, above all that a world ever named."""
    return Nonce(max(state.nonces.get(slot, Nonce(0)), _named_nonce(state, slot)) + 1)


def _offer(state: JobState, slot: Slot) -> SlotOffer | None:
    """Return the offer of a slot: in in-process mode the process that is there, or nothing;
    otherwise a process to come.
    """
    if not state.is_in_process:
        return SlotOffer(slot=slot, nonce=_offered_nonce(state, slot))
    worker = state.workers.get(slot)
    if worker is None:
        last = state.nonces.get(slot, Nonce(0))
        if is_current(state) and state.done.get(slot) == last:
            return SlotOffer(slot=slot, nonce=last, is_finished=True)
        # Names nobody, and proves that whoever was here before has ended.
        return SlotOffer(slot=slot, nonce=Nonce(last + 1))
    if worker.stage is WorkerStage.FAILED or worker.stop_sent:
        return None
    return SlotOffer(
        slot=slot,
        nonce=worker.nonce,
        is_prepared=worker.is_attached and not worker.is_finished,
        has_state=worker.has_state,
        is_finished=worker.is_finished,
    )


def _left(state: JobState) -> Generation:
    """Return the proof that the world is over here, if the same processes wait for the next one."""
    if not (state.is_in_process and state.is_world_ended and state.is_in_world):
        return Generation(0)
    is_idle = all(w.entered == 0 or w.is_finished for w in state.workers.values())
    return state.world.generation if is_idle and state.world is not None else Generation(0)


def _is_silent(state: JobState, worker: Worker) -> bool:
    """Return whether a worker of the generation that broke for others here has said nothing."""
    return (
        state.broken > 0
        and worker.entered == worker.generation == state.broken
        and worker.broken < state.broken
        and not (worker.is_finished or worker.stop_sent or worker.stage is WorkerStage.FAILED)
    )


def _stall(state: JobState) -> Stall | None:
    """Return the worker that is furthest behind, if no worker of ours makes progress."""
    stalls = [w.stall for w in state.workers.values() if w.stall is not None and w.generation]
    if not stalls or desired_generation(state) is None:
        return None
    # It need not be the standing one: that may begin at a step which will never be made.
    generation = max(stall.generation for stall in stalls)
    stalls = [stall for stall in stalls if stall.generation == generation]
    if len(stalls) < sum(w.runs_in == generation for w in state.workers.values()):
        return None
    return min(stalls, key=lambda stall: (stall.place, stall.is_in_collective, stall.slot))


def _offered_nonce(state: JobState, slot: Slot) -> Nonce:
    """Return the offered process number: a slot keeps it while its worker lives, and after exit 0
    while the world stands.
    """
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

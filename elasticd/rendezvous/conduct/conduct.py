"""Applies the world on this node: a member stops, starts, says "arrived", leaves, says goodbye.

It is level-triggered: each step compares what is with what should be, and may run at any time. So
it does not matter which event came first, twice or not at all.
"""

import dataclasses

from elasticd.records.account.incident import Incident
from elasticd.records.ids import Generation, Nonce
from elasticd.records.member import Member
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import Placement, WorldNode
from elasticd.rendezvous.conduct.change_incident import begin_incident, phases_until, write_incident
from elasticd.rendezvous.conduct.in_process import (
    are_idle,
    enter,
    is_hung_one,
    is_kept,
    is_membership_over,
    leave,
    prepare,
)
from elasticd.rendezvous.effect import (
    Effect,
    Retire,
    StartWorker,
    StopWorker,
    UseStore,
    Withdraw,
    WriteIncident,
    WriteMember,
    WriteResult,
)
from elasticd.rendezvous.next_world.exclusion import readmission_delay_s
from elasticd.rendezvous.next_world.handover import keeps_state
from elasticd.rendezvous.next_world.propose import PROPOSERS
from elasticd.rendezvous.own_record import (
    desired_generation,
    desired_member,
    desired_result,
    is_current,
    is_forming,
    is_news,
    is_shut_out,
    my_node,
)
from elasticd.rendezvous.stages import with_stage
from elasticd.rendezvous.state import JobState, Stage, Timing, Worker, WorkerStage, replace

__all__ = ["conduct", "retirement"]

Step = tuple[JobState, tuple[Effect, ...]]


def conduct(state: JobState, *, now_s: float) -> Step:
    """Bring our workers and our records into line with the world."""
    effects: list[Effect] = []
    for step in (
        _stop,
        _spend,
        _start,
        enter,
        leave,
        _arrive,
        write_incident,
        prepare,
        _leave,
        _write_result,
        _write_member,
    ):
        state, more = step(state, now_s)
        effects.extend(more)
    return state, tuple(effects)


def _stop(state: JobState, now_s: float) -> Step:
    """Ask workers to end that belong to no generation that should run, or that failed and still
    live.
    """
    wanted = desired_generation(state)
    workers = dict(state.workers)
    effects = []
    for slot, worker in state.workers.items():
        if state.is_in_process:
            is_wanted = is_kept(state, worker, now_s)
        else:
            is_wanted = worker.generation == wanted and worker.stage is not WorkerStage.FAILED
        if is_wanted or worker.stop_sent:
            continue
        effects.append(StopWorker(slot=slot, nonce=worker.nonce, grace_s=_grace_s(state, worker)))
        workers[slot] = dataclasses.replace(worker, stop_sent=True)
    return (replace(state, workers=workers), tuple(effects)) if effects else (state, ())


def _grace_s(state: JobState, worker: Worker) -> float:
    """Return the grace, the same on every path: the full one when nothing is broken."""
    spec = state.spec
    if is_hung_one(state, worker):
        return 0.0
    if worker.stage is WorkerStage.FAILED or is_membership_over(state):
        # Without us others go on, whatever the standing world was made for: soon, or already.
        return spec.failure_timeout_s
    if state.status is not None and state.status.phase is Phase.STOPPED:
        return spec.shutdown_timeout_s
    reason = state.world.reason if state.world is not None else Reason.NODE_LOST
    if state.is_world_ended and state.status is not None:
        reason = state.status.reason
    is_planned = reason.is_planned or (state.leaving is not None and not state.is_over)
    return spec.shutdown_timeout_s if is_planned else spec.failure_timeout_s


def _spend(state: JobState, now_s: float) -> Step:
    """Give up stores that were a world's, including one that we never came to start."""
    spent = state.world.spent_stores if state.world is not None else ()
    used = [store for store in state.stores if store in spent]
    if not used:
        return state, ()
    state = replace(state, stores=tuple(s for s in state.stores if s not in used))
    return state, tuple(UseStore(store=store, is_begun=False) for store in used)


def _start(state: JobState, now_s: float) -> Step:
    """Start the workers of a new generation once nothing of an older one is left here."""
    world, mine, wanted = state.world, my_node(state), desired_generation(state)
    if world is None or mine is None or wanted is None or state.adopted >= wanted:
        return state, ()
    if state.workers or not state.is_pool_ready or state.is_fenced:
        return state, ()
    if any(w.nonce <= state.nonces.get(w.slot, 0) for w in mine.workers):
        # Planned from an offer that was out of date: that process has been. Our record says so.
        return state, ()
    if mine.first_rank == 0 and world.store not in state.stores:
        return _refused(state, mine, wanted), ()
    placements = list(world.placements_of(mine))
    effects: list[Effect] = []
    stores = state.stores
    if mine.first_rank == 0:
        effects.append(UseStore(store=world.store))
        stores = tuple(store for store in stores if store != world.store)
    effects.extend(StartWorker(world=world, placement=p) for p in placements)
    return (
        replace(
            state,
            adopted=wanted,
            workers={p.worker.slot: _worker(state, p) for p in placements},
            nonces={**state.nonces, **{p.worker.slot: p.worker.nonce for p in placements}},
            stores=stores,
            exits=(),
            done={},
            failure=None,
            timing=dataclasses.replace(state.timing, stopped_s=now_s),
        ),
        tuple(effects),
    )


def _refused(state: JobState, mine: WorldNode, wanted: Generation) -> JobState:
    """Count our workers as lost, because the world names a store that is no longer fresh."""
    nonces = {**state.nonces, **{w.slot: w.nonce for w in mine.workers}}
    return replace(
        state,
        adopted=wanted,
        adopted_arrival=wanted,
        nonces=nonces,
        exits=(),
        done={},
        failure=None,
    )


def _worker(state: JobState, placement: Placement) -> Worker:
    assert state.world is not None
    return Worker(
        slot=placement.worker.slot,
        nonce=placement.worker.nonce,
        generation=state.world.generation,
        rank=placement.rank,
    )


def _arrive(state: JobState, now_s: float) -> Step:
    """Write that all our workers are started, and what the change cost here."""
    world = state.world
    if world is None or not is_forming(state) or state.adopted != world.generation:
        return state, ()
    ours = [w for w in state.workers.values() if w.generation == world.generation]
    if any(worker.stage is WorkerStage.STARTING for worker in ours):
        return state, ()
    if any(worker.is_attached and worker.entered != world.generation for worker in ours):
        return state, ()
    mine = my_node(state)
    if state.is_in_process and mine is not None and len(ours) < len(mine.workers):
        return state, ()  # Who was named and ended before it could enter never will.
    # What is the world's own is told by a few: a thousand copies of one traceback fill etcd.
    is_teller = any(node.node == state.me.node for node in world.nodes[:PROPOSERS])
    incident = Incident(
        generation=world.generation,
        node=state.me.node,
        host=state.me.host,
        reason=world.reason,
        culprit=world.culprit if is_teller else None,
        lost=world.lost if is_teller else (),
        world_size=world.size,
        nodes=len(world.nodes),
        note=world.note,
        phases_s=phases_until(state.timing, now_s),
    )
    state = replace(state, adopted_arrival=world.generation)
    if any(worker.is_attached for worker in ours):
        return begin_incident(state, incident, world), ()
    state = replace(state, timing=Timing())
    return state, (WriteIncident(incident=incident),) if not state.is_fenced else ()


def _leave(state: JobState, now_s: float) -> Step:
    """Say goodbye, once no worker is left and no world counts on us."""
    is_empty = not state.workers or (is_membership_over(state) and are_idle(state))
    if state.stage is Stage.VOID:
        return _retired(state, rejoin_after_s=0.0) if is_empty else (state, ())
    if state.stage not in (Stage.MEMBER, Stage.LEAVING) or not is_empty:
        return state, ()
    if not (state.is_over or is_shut_out(state) or _is_free_to_leave(state, now_s)):
        return state, ()
    if state.is_replaced and state.status is None:
        return _retired(state, rejoin_after_s=None)  # Our records went with the job's.
    if state.is_fenced:
        # Nothing may be written: whoever need not come back goes without a word.
        is_last = state.is_over or state.leaving is not None
        return _retired(state, rejoin_after_s=None) if is_last else (state, ())
    if state.retry_at_s is not None and now_s < state.retry_at_s:
        return state, ()
    state = with_stage(state, Stage.WITHDRAWING)
    revision = None if state.is_over else state.world_revision
    result = desired_result(state, has_left=True)
    return state, (Withdraw(result=result, world_revision=revision),)


def retirement(state: JobState) -> Step:
    """Return what follows the goodbye: leave for good, or come back as a new incarnation."""
    exclusion = state.world.exclusion(state.me.node) if state.world is not None else None
    is_back = exclusion is not None and is_shut_out(state)
    if exclusion is None or not is_back:
        return _retired(state, rejoin_after_s=None)
    delay_s = readmission_delay_s(exclusion.losses, is_in_process=state.is_in_process)
    is_cut_off = exclusion.reason is Reason.CUT_OFF
    return _retired(state, rejoin_after_s=delay_s, is_cut_off=is_cut_off)


def _retired(state: JobState, *, rejoin_after_s: float | None, is_cut_off: bool = False) -> Step:
    if state.leaving is not None or state.is_over:
        rejoin_after_s = None
    retire = Retire(
        is_job_over=state.is_over,
        rejoin_after_s=rejoin_after_s,
        is_cut_off=is_cut_off,
        keeps_workers=rejoin_after_s is not None and bool(state.workers),
    )
    return with_stage(state, Stage.RETIRED), (retire,)


def _is_free_to_leave(state: JobState, now_s: float) -> bool:
    if state.leaving is None:
        return False
    if not state.is_in_world or state.is_world_ended:
        return not keeps_state(state, now_s)
    # All our ranks exited with 0 and that is written down: the world does without us.
    mine = my_node(state)
    is_written = not state.is_result_in_flight and desired_result(state) == state.result_sent
    ok = sum(exit_.code == 0 for exit_ in state.exits)
    return mine is not None and is_written and is_current(state) and ok == len(mine.workers)


def _write_result(state: JobState, now_s: float) -> Step:
    """Write the result of ranks that finished, which must outlive us; a failure is in our member
    record.
    """
    if state.is_replaced or not any(exit_.code == 0 for exit_ in state.exits):
        return state, ()
    if state.is_fenced or state.is_result_in_flight:
        return state, ()
    if state.stage not in (Stage.MEMBER, Stage.LEAVING):
        return state, ()
    if state.retry_at_s is not None and now_s < state.retry_at_s:
        return state, ()
    result = desired_result(state)
    if result == state.result_sent:
        return state, ()
    state = replace(state, result_sent=result, is_result_in_flight=True)
    return state, (WriteResult(result=result),)


def _write_member(state: JobState, now_s: float) -> Step:
    """Keep our record true; while a world forms, write only what it must know at once."""
    if state.is_fenced or state.is_member_in_flight or state.proposal:
        return state, ()
    if state.is_over or is_shut_out(state):
        return state, ()
    if state.stage not in (Stage.MEMBER, Stage.LEAVING):
        return state, ()
    if state.retry_at_s is not None and now_s < state.retry_at_s:
        return state, ()
    member, sent = desired_member(state), state.member_sent
    if not is_news(member, sent):
        return state, ()
    if sent is not None and is_forming(state) and member.leaving == sent.leaving:
        mine = my_node(state)
        named = {w.slot: w.nonce for w in mine.workers} if mine is not None else {}
        offered: dict[int, Nonce] = {offer.slot: offer.nonce for offer in member.slots}
        is_loss = any(slot not in offered or offered[slot] > n for slot, n in named.items())
        is_loss = is_loss or _is_urgent(member, sent)
        if not is_loss and (state.stores == sent.stores or sent.stores):
            return state, ()
    state = replace(state, member_sent=member, is_member_in_flight=True, retry_at_s=None)
    return state, (WriteMember(member=member),)


def _is_urgent(member: Member, sent: Member) -> bool:
    """Return whether the others must know this to judge the formation."""
    return _facts(member) != _facts(sent)


def _facts(member: Member) -> tuple[object, ...]:
    past = [(o.slot, o.nonce, o.is_finished) for o in member.slots if o.has_state or o.is_finished]
    return member.broken, member.cut_off, member.standstill, member.is_paused, past

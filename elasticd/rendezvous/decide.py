"""The entry point: it takes one event, and returns the next state and what to do about it.

It is deterministic in (state, event, now_s): the simulator, the recorded log of a live agent and
the agent itself run the same code. Every call ends with `_reconcile`, so that a fact which came
while something was in flight is acted upon as soon as it lands.
"""

import dataclasses
import zlib
from typing import assert_never

from elasticd.records.ids import NodeId
from elasticd.records.member import Peer, peer_of
from elasticd.records.reason import Reason
from elasticd.rendezvous import event as ev
from elasticd.rendezvous import invariant
from elasticd.rendezvous.conduct.conduct import conduct, retirement
from elasticd.rendezvous.effect import Effect, FindOldest, HoldPeers, Observe
from elasticd.rendezvous.facts import etcd_facts, result_facts
from elasticd.rendezvous.facts.worker_facts import with_kept, worker_changed
from elasticd.rendezvous.next_world.handover import handover_end_s
from elasticd.rendezvous.next_world.node_condition import has_ended, is_world_missed
from elasticd.rendezvous.next_world.propose import (
    PROPOSERS,
    may_propose,
    propose,
    proposers,
    schedule_proposal,
)
from elasticd.rendezvous.stages import with_stage
from elasticd.rendezvous.state import JobState, Stage, replace

__all__ = ["RACES_BEFORE_REREAD", "REREAD_S", "decide", "wake_at_s"]

REREAD_S = 60.0
"""The interval of a slow re-read, which repairs what a watch may have missed; once a minute costs
nothing."""
REREAD_SPREAD = 0.5
"""By this part the intervals of two members may differ, so that not all of them read at once."""
RACES_BEFORE_REREAD = 4
"""After this many lost races in a row it reads again: one that loses more than others can win has
missed something."""
LONGEST_RACE_PAUSE_S = 5.0
RETRY_S = 0.25
"""The pause between tries of a write while etcd does not answer; the store itself waits for
seconds."""


def decide(
    state: JobState, event: ev.Event, *, now_s: float
) -> tuple[JobState, tuple[Effect, ...]]:
    """Return the next state and what to do about it.

    Raises:
        InvariantBroken: our own bug; the state before is still good evidence.
    """
    if state.stage is Stage.RETIRED:
        return state, ()
    before = state
    state, effects = _take(state, event, now_s)
    learned = state
    if state.stage is not Stage.RETIRED:
        state, more = _reconcile(before, state, now_s)
        effects += more
    invariant.check(before, learned, state, effects)
    return state, effects


def wake_at_s(state: JobState) -> float | None:
    """Return when `Ticked` is wanted next, on the clock of `now_s`; None if it is not."""
    if state.stage is Stage.RETIRED:
        return None
    times = [state.reread_at_s or None, state.retry_at_s, state.world_due_s]
    times += [w.leave_by_s for w in state.workers.values() if not w.stop_sent]
    if state.is_in_process:
        free = [slot for slot in state.slots if slot not in state.workers]
        times += [f.retry_at_s for slot in free if (f := state.slot_failures.get(slot)) is not None]
    if state.stage is Stage.LEAVING and state.is_world_ended:
        times.append(handover_end_s(state))
    if may_propose(state):
        times += [state.plan_at_s, state.join_at_s]
    if state.formed_s is None and state.me.node in proposers(state):
        times.append(state.formation_deadline_s)
    return min((t for t in times if t is not None), default=None)


def _take(state: JobState, event: ev.Event, now_s: float) -> tuple[JobState, tuple[Effect, ...]]:
    """Learn one fact; only a goodbye's answer has an effect of its own."""
    match event:
        case ev.MembersListed():
            state = etcd_facts.members_listed(state, event, now_s)
        case ev.MemberSeen():
            state = etcd_facts.member_seen(state, event, now_s)
        case ev.MemberDeleted():
            state = etcd_facts.member_deleted(state, event, now_s)
        case ev.WorldSeen():
            state = etcd_facts.world_seen(state, event, now_s)
        case ev.StatusSeen():
            state = etcd_facts.status_seen(state, event, now_s)
        case ev.WantsListed():
            state = etcd_facts.wants_listed(state, event, now_s)
        case ev.ResultsListed():
            state = result_facts.results_listed(state, event, now_s)
        case ev.ResultSeen(result=result):
            state = result_facts.result_seen(state, result, now_s)
        case ev.ResultDeleted(node=node):
            state = result_facts.result_deleted(state, node)
        case ev.PeerDied():
            state = etcd_facts.peer_died(state, event, now_s)
        case ev.OldestFound():
            state = etcd_facts.oldest_found(state, event, now_s)
            state = state if state.oldest else _to_retry(state, now_s)
        case ev.WithdrawalDone(ok=ok):
            if ok or state.stage is not Stage.WITHDRAWING:
                return retirement(state) if state.stage is Stage.WITHDRAWING else (state, ())
            stage = Stage.MEMBER if state.leaving is None else Stage.LEAVING
            state = _to_retry(with_stage(state, stage), now_s)
        case ev.MemberWritten() | ev.ProposalAnswered() | ev.StatusWritten() | ev.EffectDone():
            state = _answered(state, event, now_s)
        case (
            ev.WorkerStarted()
            | ev.WorkerFailed()
            | ev.WorkerExited()
            | ev.WorkerAttached()
            | ev.WorkerEntered()
            | ev.WorkerFormed()
            | ev.WorkerLeft()
            | ev.WorkerStepped()
            | ev.WorkerFinished()
            | ev.WorkerPaced()
            | ev.WorkerBroken()
            | ev.WorkerStalled()
            | ev.WorkerResumed()
        ):
            state = worker_changed(state, event, now_s)
        case _:
            state = _node_changed(state, event, now_s)
    return state, ()


def _answered(
    state: JobState,
    event: ev.MemberWritten | ev.ProposalAnswered | ev.StatusWritten | ev.EffectDone,
    now_s: float,
) -> JobState:
    """Note that an effect is not in flight any more, so it may be tried again."""
    match event:
        case ev.MemberWritten(ok=ok):
            state = replace(state, is_member_in_flight=False)
            return state if ok else _to_retry(replace(state, member_sent=None), now_s)
        case ev.ProposalAnswered():
            state = replace(state, proposal="")
            if state.is_member_in_flight:
                state = replace(state, is_member_in_flight=False)
                if not event.is_member_written:
                    state = _to_retry(replace(state, member_sent=None), now_s)
            if event.accepted and event.world is not None:
                seen = ev.WorldSeen(world=event.world, revision=event.revision)
                return etcd_facts.world_seen(state, seen, now_s)
            return _lost_race(state, now_s, pause_s=0.01)
        case ev.StatusWritten(ok=ok):
            state = replace(state, is_status_in_flight=False)
            if ok:
                return replace(state, lost_races=0)
            return _lost_race(state, now_s, pause_s=RETRY_S)
        case ev.EffectDone(name="WriteResult", ok=ok):
            state = replace(state, is_result_in_flight=False)
            return state if ok else _to_retry(replace(state, result_sent=None), now_s)
        case ev.EffectDone(name="FindOldest", ok=False):
            return _to_retry(replace(state, is_oldest_asked=False), now_s)
        case ev.EffectDone():
            return state
        case _:
            assert_never(event)


def _lost_race(state: JobState, now_s: float, *, pause_s: float) -> JobState:
    """Look again after a pause, which grows; and read what stands, if it was no race."""
    races = state.lost_races + 1
    state = replace(state, lost_races=races)
    if races < RACES_BEFORE_REREAD:
        return replace(state, plan_at_s=now_s + pause_s * races)
    pause_s = min(pause_s * 2.0 ** min(races, 16), LONGEST_RACE_PAUSE_S)
    if (races - RACES_BEFORE_REREAD) % RACES_BEFORE_REREAD == 0:
        state = replace(state, reread_at_s=now_s)
    return replace(state, plan_at_s=now_s + pause_s)


def _node_changed(state: JobState, event: ev.Event, now_s: float) -> JobState:
    match event:
        case ev.SlotsGranted(slots=slots):
            return replace(state, slots=slots)
        case ev.WorkersKept():
            return with_kept(state, event)
        case ev.PoolChanged(is_ready=is_ready, failure=failure):
            known = state.failure
            if is_ready and known is not None and known.generation == 0:
                known = None  # What kept this node from starting workers has passed.
            return replace(state, is_pool_ready=is_ready, failure=failure or known)
        case ev.StoresChanged(stores=stores):
            # The pool may not have heard yet that we use one; one that we are yet to use is fresh.
            world = state.world
            used = world.store if world is not None and state.adopted >= world.generation else None
            return replace(state, stores=tuple(store for store in stores if store != used))
        case ev.NodeWaited(wait=wait):
            return replace(state, wait=wait)
        case ev.LeaveRequested(reason=reason):
            if state.leaving is Reason.DRAINED and reason is not Reason.DRAINED:
                # Its agent is told to end: it cannot wait for as long as a drain does.
                since_s = now_s if state.is_world_ended else state.handover_s
                state = replace(state, leaving=reason, handover_s=since_s)
                return schedule_proposal(state, reason, now_s=now_s, is_own=True)
            if state.leaving is not None:
                return state
            since_s = now_s if state.is_world_ended else state.handover_s
            state = replace(state, leaving=reason, handover_s=since_s)
            if state.stage is not Stage.MEMBER:
                return state
            state = with_stage(state, Stage.LEAVING)
            return schedule_proposal(state, reason, now_s=now_s, is_own=True)
        case ev.LeaseHeld():
            if not state.is_fenced or state.stage is Stage.VOID:
                return state
            # Nobody promised that the watches saw everything meanwhile: read once more.
            # Nor could others be heard: their time begins anew.
            state = replace(state, is_fenced=False, reread_at_s=now_s, unheard_s=None)
            return schedule_proposal(state, Reason.NODE_LOST, now_s=now_s)
        case ev.LeaseUncertain():
            return replace(state, is_fenced=True)
        case ev.LeaseEnded():
            return with_stage(replace(state, is_fenced=True), Stage.VOID)
        case ev.Ticked():
            return _ticked(state, now_s)
        case _:
            raise AssertionError(f"no rule for {event!r}")


def _ticked(state: JobState, now_s: float) -> JobState:
    end_s = handover_end_s(state)
    if state.is_world_ended and end_s is not None and end_s <= now_s:
        state = replace(state, handover_s=None)
    if state.retry_at_s is not None and state.retry_at_s <= now_s:
        state = replace(state, retry_at_s=None)
    if state.world_due_s is not None and state.world_due_s <= now_s:
        state = replace(state, world_due_s=None)
        if is_world_missed(state):
            state = replace(state, reread_at_s=now_s)
    failures = state.slot_failures
    due = [slot for slot, f in failures.items() if f.retry_at_s and f.retry_at_s <= now_s]
    if due:
        over = {slot: dataclasses.replace(failures[slot], retry_at_s=None) for slot in due}
        state = replace(state, slot_failures={**failures, **over})
    deadline_s = state.formation_deadline_s
    if state.formed_s is None and deadline_s is not None and deadline_s <= now_s:
        if state.is_world_ended:
            return replace(state, formation_deadline_s=None)
        # Before anybody is accused: a watch may have missed an arrival.
        state = replace(state, is_formation_overdue=True, formation_deadline_s=None)
        if state.has_all_members:
            state = replace(state, reread_at_s=now_s, has_all_members=False)
        return schedule_proposal(state, Reason.DID_NOT_ARRIVE, now_s=now_s)
    return state


def _to_retry(state: JobState, now_s: float) -> JobState:
    return replace(state, retry_at_s=now_s + RETRY_S)


def _reconcile(
    before: JobState, state: JobState, now_s: float
) -> tuple[JobState, tuple[Effect, ...]]:
    """Propose first, since a proposal takes our own change along, which saves a write."""
    state, effects = _observe(before, state, now_s)
    state, more = propose(state, now_s=now_s)
    effects += more
    state, more = conduct(state, now_s=now_s)
    return state, effects + more


def _observe(
    before: JobState, state: JobState, now_s: float
) -> tuple[JobState, tuple[Effect, ...]]:
    """Watch what our place in the order requires: everybody, or only the proposers."""
    effects: tuple[Effect, ...] = ()
    turn = proposers(state)
    if not turn and not state.is_oldest_asked and not state.is_over:
        has_record = state.member_sent is not None and not state.is_member_in_flight
        if has_record and not (state.retry_at_s is not None and now_s < state.retry_at_s):
            effects += (FindOldest(count=PROPOSERS + len(state.dead)),)
            state = replace(state, is_oldest_asked=True)
    # Our own record too: it could be taken away.
    wanted = None if state.me.node in turn else (*turn, state.me.node) if turn else ()
    is_due = state.reread_at_s <= now_s
    if wanted != state.observed or is_due:
        # Whoever stops being a proposer keeps nothing that it no longer hears about.
        if wanted is not None or state.observed is not None:
            state = replace(state, has_all_members=False, has_results=False)
        effects += (Observe(nodes=wanted, is_reread=is_due),)
        state = replace(state, observed=wanted)
        if is_due:
            state = replace(state, reread_at_s=now_s + _reread_interval_s(state))
    if _has_same_view(before, state):
        return state, effects
    peers = _peers(state, turn)
    if peers != state.peers_held:
        effects += (HoldPeers(peers=peers),)
        state = replace(state, peers_held=peers)
    return state, effects


def _reread_interval_s(state: JobState) -> float:
    """Return about a minute, different for each member."""
    part = zlib.crc32(state.me.incarnation.encode()) / 2**32
    return REREAD_S * (1.0 + REREAD_SPREAD * (part - 0.5))


def _has_same_view(before: JobState, state: JobState) -> bool:
    """Return whether the proposers and their addresses are surely the same, as they mostly are."""
    return (
        before.members is state.members
        and before.world is state.world
        and before.oldest is state.oldest
        and before.gone_s is state.gone_s
        and before.dead is state.dead
    )


def _peers(state: JobState, turn: tuple[NodeId, ...]) -> tuple[Peer, ...]:
    """Return the proposers that we can reach: they notice our end, we theirs.

    A proposer also holds agents whose name another life has taken: at the old address a refusal
    proves that they have ended; otherwise they may still train.
    """
    found = []
    for name in turn:
        if name == state.me.node:
            continue
        seen = state.members.get(name)
        node = state.world.node(name) if state.world is not None else None
        known = seen.member if seen is not None else node
        if known is not None:
            found.append(peer_of(known))
    if state.me.node not in turn or state.world is None:
        return tuple(found)
    for name in state.gone_s:
        node, seen = state.world.node(name), state.members.get(name)
        if node is not None and seen is not None and not has_ended(state, state.world, node):
            found.append(peer_of(node))
    return tuple(found)

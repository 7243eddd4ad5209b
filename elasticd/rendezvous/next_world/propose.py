"""When to propose another world, and what the status says meanwhile.

Three agents are proposers. They look at the world when a fact made it worth a look, the first of
them at once, the others a little later, so that one write is normal and a dead proposer costs
milliseconds. An agent that saw its own worker die does not wait for its turn, since nobody can know
sooner.
"""

import dataclasses

from elasticd.records.ids import NodeId
from elasticd.records.job import JobStatus, target_nodes
from elasticd.records.member import Member
from elasticd.records.reason import Cause, Phase, Reason
from elasticd.records.world import World
from elasticd.rendezvous.effect import Effect, ProposeWorld, WriteStatus
from elasticd.rendezvous.history import oldest_kept, unneeded_results
from elasticd.rendezvous.next_world.change import (
    WorldChange,
    find_change,
    is_candidate,
)
from elasticd.rendezvous.next_world.exclusion import without
from elasticd.rendezvous.next_world.job_end import is_ending, status_at_end, status_if_trained
from elasticd.rendezvous.next_world.node_condition import is_found_dead
from elasticd.rendezvous.next_world.plan import plan_world
from elasticd.rendezvous.next_world.restart_budget import (
    budget_of,
    failed,
    is_paid,
    is_refilled,
)
from elasticd.rendezvous.next_world.wait import (
    ALIKE_GRACE_S,
    SECONDARY_GRACE_S,
    WORD_WINDOW_S,
    Wait,
    cause_wait,
    is_culprit_awaited,
)
from elasticd.rendezvous.own_record import desired_member, is_news
from elasticd.rendezvous.state import JobState, Stage, replace

__all__ = ["PROPOSERS", "schedule_proposal", "may_propose", "propose", "proposers"]

PROPOSERS = 3
STAGGER_S = 0.03
"""The delay between two proposers: ten times what a proposal takes on an idle etcd."""
BURST_WINDOW_S = 0.1
"""A second change while a world is still forming waits this long, so that a burst becomes one
world."""
LOSS_WINDOW_S = {Reason.NODE_LOST: 0.05, Reason.NODE_DEAD: 0.02}
"""How long to wait for more losses: nodes that go together (a rack, a switch) are missed a little
apart, by their leases more than by their sockets."""
END_READ_S = 5.0
"""How long a repeated read is valid; the answer takes milliseconds."""
RACES_BEFORE_FORCE = 3
"""After so many lost races against members' changes, only the world's revision must hold."""


def proposers(state: JobState) -> tuple[NodeId, ...]:
    """Return the nodes that propose now, the most urgent first.

    They are those of the three lowest ranks that are not known to be gone, or are back. If none is
    left, or before the first world, they are the three oldest members, which etcd names.
    """
    world = state.world
    if world is not None:
        alive = tuple(
            node.node
            for node in world.nodes[:PROPOSERS]
            if (node.node not in state.gone_s or node.node in state.members)
            and not is_found_dead(state, node.node)
        )
        if alive:
            return alive
    return state.oldest or ()


def schedule_proposal(
    state: JobState, reason: Reason, *, now_s: float, is_own: bool = False
) -> JobState:
    """Schedule a turn as proposer, and note how soon it is due."""
    turn = proposers(state)
    if state.me.node not in turn and not (is_own and state.has_all_members):
        return state
    if reason is Reason.COLLECTIVE_BROKEN:
        delay_s = WORD_WINDOW_S if is_culprit_awaited(state) else SECONDARY_GRACE_S
    elif reason is Reason.WORKER_FAILED and state.is_in_process:
        # Where a collective broke, the ranks did not all raise.
        delay_s = 0.0 if is_culprit_awaited(state) else ALIKE_GRACE_S
    elif reason is Reason.WORKER_FAILED and state.world is not None and state.world.size > 1:
        delay_s = SECONDARY_GRACE_S
    elif state.world is None and any(want.is_stop for want in state.wants.values()):
        delay_s = 0.0  # Whoever joins meanwhile would only be stopped, too.
    elif state.world is None or reason is Reason.JOINED:
        delay_s = 0.0 if _are_all_here(state) else state.spec.join_window_s
    elif reason in LOSS_WINDOW_S:
        delay_s = LOSS_WINDOW_S[reason]
    else:
        delay_s = 0.0
    if state.world is not None and state.formed_s is None and not state.is_world_ended:
        delay_s = max(delay_s, BURST_WINDOW_S)
    if not (is_own and delay_s == 0.0) and state.me.node in turn:
        delay_s += turn.index(state.me.node) * STAGGER_S
    due_s = now_s + delay_s
    if reason is Reason.JOINED and state.world is not None:
        # Apart from the rest: a join may be looked at sooner than a failure is understood.
        before_s = state.join_at_s
        return replace(state, join_at_s=due_s if before_s is None else min(due_s, before_s))
    before_s = state.plan_at_s
    return replace(state, plan_at_s=due_s if before_s is None else min(due_s, before_s))


def _are_all_here(state: JobState) -> bool:
    """Return whether no other node is on the way, as far as known, so that waiting would only cost
    time.
    """
    world = state.world
    if world is None or state.formed_s is None or not state.is_in_process:
        return False
    count = 0
    is_new_node = False
    for seen in state.members.values():
        member = seen.member
        if member.leaving is not None:
            continue
        if not all(offer.is_prepared or offer.is_finished for offer in member.slots):
            return False
        count += bool(member.slots)
        is_new_node |= world.node(member.node) is None
    # Where there is room for more nodes, more may come with this one.
    return not is_new_node or count >= target_nodes(state.spec, state.wants)


def propose(state: JobState, *, now_s: float) -> tuple[JobState, tuple[Effect, ...]]:
    """If it is time to look: end the job, propose a world, or write what the job waits for."""
    due = [at_s is not None and at_s <= now_s for at_s in (state.plan_at_s, state.join_at_s)]
    if not any(due) or not may_propose(state):
        return state, ()
    pending_s = None if due[0] else state.plan_at_s
    state = replace(state, plan_at_s=pending_s, join_at_s=None if due[1] else state.join_at_s)
    final = status_at_end(state)
    if final is not None:
        return _write_status(state, final)
    target = target_nodes(state.spec, state.wants)
    is_overdue = state.is_formation_overdue and state.formed_s is None
    own = desired_member(state)
    view = _with_own(state, own)
    change = find_change(view, target, is_overdue)
    final = status_if_trained(state)
    if change is None and state.is_formation_overdue:
        # Nobody is to blame. Else it stays known until another world is seen: the proposal may
        # lose a race, or have to wait.
        next_s = now_s + state.spec.formation_timeout_s
        state = replace(state, is_formation_overdue=False, formation_deadline_s=next_s)
    if change is None and final is None:
        return _say_mode(state)
    if change is not None and pending_s is not None and not change.reason.is_planned:
        return state, ()  # What is behind it may be on its way, and has its own time.
    if _is_to_read_first(state, now_s):
        state = replace(state, has_all_members=False, has_results=False)
        return replace(state, read_at_end_s=now_s, reread_at_s=now_s), ()
    if final is not None:
        return _write_status(state, final)
    assert change is not None
    awaited = cause_wait(view, change, now_s)
    # What a broken collective is to cost is known when its cause is.
    is_known = awaited is None or awaited.reason is not Reason.COLLECTIVE_BROKEN
    final = failed(view, change, now_s) if is_known else None
    if final is not None:
        return _write_status(state, final)
    if awaited is not None:
        return replace(state, cause_wait=awaited, plan_at_s=awaited.until_s), ()
    if state.world is None:
        wait_s = _first_world_wait_s(state, target, now_s)
        if wait_s is not None:
            return replace(state, plan_at_s=wait_s), ()
    planned = plan_world(view, change, now_s=now_s)
    if isinstance(planned, Wait):
        if planned.is_for_state and state.unheard_s is None:
            state = replace(state, unheard_s=now_s)
        if planned.is_for_handover and state.handover_s is None:
            state = replace(state, handover_s=now_s)
        return _say_wait(state, change, planned, now_s)
    return _propose_world(state, change, planned, own, now_s)


def _propose_world(
    state: JobState, change: WorldChange, planned: World, own: Member, now_s: float
) -> tuple[JobState, tuple[Effect, ...]]:
    """Propose the planned world, together with this node's own record where that has news."""
    is_changed = is_news(own, state.member_sent)
    effect = ProposeWorld(
        world=planned,
        status=_running_status(state, change, planned, now_s),
        world_revision=state.world_revision,
        status_revision=state.status_revision,
        members_revision=(
            state.members_revision if state.lost_races < RACES_BEFORE_FORCE else None
        ),
        member=own if is_changed else None,
        oldest_kept=oldest_kept(planned),
        unneeded_results=unneeded_results(state, planned),
    )
    timing = dataclasses.replace(state.timing, proposed_s=now_s)
    state = replace(state, proposal=planned.token, timing=timing)
    if is_changed:
        state = replace(state, member_sent=own, is_member_in_flight=True)
    return state, (effect,)


def may_propose(state: JobState) -> bool:
    """Return whether nothing that we know or have in flight forbids to propose now.

    World and status change together, but are seen one after the other. In between, the budget of
    one would be charged for what happened to the other.
    """
    generation = state.world.generation if state.world is not None else 0
    return (
        state.stage in (Stage.MEMBER, Stage.LEAVING)
        and state.has_all_members
        and state.has_results
        and not state.is_fenced
        and not state.is_over
        and not state.proposal
        and not state.is_status_in_flight
        and not state.is_member_in_flight
        and state.status is not None
        and state.status.generation == generation
    )


def _with_own(state: JobState, own: Member) -> JobState:
    """Return the facts with our own news, which need not go through etcd: the proposal takes it
    along.
    """
    seen = state.members.get(state.me.node)
    if seen is None or seen.member.incarnation != own.incarnation:
        return state
    return replace(
        state, members=state.members.with_item(own.node, dataclasses.replace(seen, member=own))
    )


def _is_to_read_first(state: JobState, now_s: float) -> bool:
    """Return whether to read first: at the end, a watch that missed how a rank ended would cost the
    whole training.
    """
    world, read_s = state.world, state.read_at_end_s
    if world is None or not state.is_in_process or not is_ending(state, world):
        return False
    return read_s is None or now_s - read_s > END_READ_S


def _running_status(state: JobState, change: WorldChange, world: World, now_s: float) -> JobStatus:
    assert state.status is not None
    budget, cause = budget_of(state, now_s), change.cause
    is_charged = state.world is not None and not state.is_world_ended and cause is not None
    is_charged = is_charged and not is_paid(state.status, change.culprit)
    # Also where a slot pays for it: the next rank that raises the same shows that it is the script.
    user_error = change.culprit if change.reason.cause is Cause.USER_ERROR else None
    if state.is_in_process and user_error is None:
        user_error = state.status.last_user_error  # A join in between makes it no better.
    is_whole = is_refilled(state, now_s)
    # It stands as long as the world does, also when these nodes are well again.
    gone = without({n: r for n, r in change.lost.items() if world.node(n) is None})
    step = state.pace.step if state.pace is not None else 0
    return JobStatus(
        uid=state.spec.uid,
        is_in_process=state.is_in_process,
        refilled_step=step if is_whole else state.status.refilled_step,
        phase=Phase.RUNNING,
        generation=world.generation,
        reason=world.reason,
        message=f"began {gone}" if gone else "",
        budget=budget.charged(cause) if is_charged and cause is not None else budget,
        nodes=len(world.nodes),
        restarts=world.restarts,
        failure=change.culprit,
        last_user_error=user_error,
        unknown=state.status.unknown,
    )


def _say_mode(state: JobState) -> tuple[JobState, tuple[Effect, ...]]:
    """Write the mode, because nodes that join later must know that they have to come prepared."""
    assert state.status is not None
    if state.status.is_in_process or not state.is_in_process or state.world is None:
        return state, ()
    return _write_status(state, dataclasses.replace(state.status, is_in_process=True))


def _first_world_wait_s(state: JobState, target: int, now_s: float) -> float | None:
    """Return how long members that are here, but still importing, get to be in the first world."""
    seen = list(state.members.values())
    if sum(is_candidate(state, s) for s in seen) >= target:
        return None
    until = [
        s.seen_s + state.spec.first_window_s
        for s in seen
        if not s.member.slots and s.member.leaving is None
    ]
    return min((u for u in until if u > now_s), default=None)


def _say_wait(
    state: JobState, change: WorldChange, wait: Wait, now_s: float
) -> tuple[JobState, tuple[Effect, ...]]:
    """Write below-min as the job's status, once; other waits concern nobody."""
    times = [at_s for at_s in (wait.until_s, state.plan_at_s) if at_s is not None]
    state = replace(state, plan_at_s=min(times, default=None))
    if not wait.is_below_min:
        return state, ()
    world, before = state.world, state.status
    assert before is not None
    phase = Phase.PENDING if world is None else Phase.WAITING
    text = "the job cannot go on without" if wait.is_in_vain else "waiting for"
    status = dataclasses.replace(
        before,
        phase=Phase.FAILED if wait.is_in_vain else phase,
        generation=before.generation if world is None else world.generation,
        reason=Reason.FIRST_WORLD if world is None else change.reason,
        message="; ".join(filter(None, (f"{text} {wait.message}", without(change.lost)))),
        failure=change.culprit,
    )
    if (status.phase, status.message) == (before.phase, before.message):
        return state, ()
    if world is not None and not state.is_world_ended:
        budget, cause = budget_of(state, now_s), change.cause
        if cause is not None and not is_paid(before, change.culprit):
            budget = budget.charged(cause)
        is_whole = is_refilled(state, now_s) and state.pace is not None
        step = state.pace.step if is_whole and state.pace is not None else before.refilled_step
        status = dataclasses.replace(status, budget=budget, refilled_step=step)
    return _write_status(state, status)


def _write_status(state: JobState, status: JobStatus) -> tuple[JobState, tuple[Effect, ...]]:
    status = dataclasses.replace(status, uid=state.spec.uid)
    effect = WriteStatus(status=status, revision=state.status_revision)
    return replace(state, is_status_in_flight=True), (effect,)

"""When to ask for another world, and what to say of the job meanwhile.

Three agents are proposers. They look at the world when a fact made it worth a look, the first of
them at once, the others a little later, so that one write is normal and a dead proposer costs
milliseconds. Whoever saw its own worker die does not wait for its turn: nobody can know sooner.
"""

import dataclasses

from elasticd.records.failure import Failure
from elasticd.records.ids import NodeId
from elasticd.records.job import Budget, JobStatus, target_nodes
from elasticd.records.member import Member
from elasticd.records.reason import Cause, Phase, Reason
from elasticd.records.world import World
from elasticd.rendezvous.change import Change, find_change, is_candidate
from elasticd.rendezvous.effect import Effect, ProposeWorld, WriteStatus
from elasticd.rendezvous.explain import without
from elasticd.rendezvous.member import desired_member, is_news
from elasticd.rendezvous.plan import Wait, plan_world
from elasticd.rendezvous.state import JobState, Stage, replace

__all__ = ["PROPOSERS", "look", "may_propose", "propose", "proposers"]

PROPOSERS = 3
STAGGER_S = 0.03
"""Ten times what a proposal takes on an idle etcd."""
BURST_WINDOW_S = 0.1
"""A second change while a world is still forming waits this long: a burst becomes one world."""
LOSS_WINDOW_S = {Reason.NODE_LOST: 0.05, Reason.NODE_DEAD: 0.02}
"""Nodes that go together (a rack, a switch) are missed a little apart: leases more than sockets."""
SECONDARY_GRACE_S = 0.1
"""A broken collective is an echo; the failure that caused it is most likely on its way."""
_PAID = {
    Cause.USER_ERROR: "errors of the script (--max-restarts)",
    Cause.NODE_LOSS: "losses of workers and nodes (--max-node-losses)",
    Cause.PREEMPTION: "nodes that left",
    Cause.RESIZE: "changes of size",
}
RACES_BEFORE_FORCE = 3
"""After so many lost races against members' changes only the world's revision must hold."""


def proposers(state: JobState) -> tuple[NodeId, ...]:
    """The nodes that propose now, the most urgent first.

    Those of the three lowest ranks that are not known to be gone. If none is left, or before the
    first world, the three oldest members, which etcd names.
    """
    world = state.world
    if world is not None:
        alive = tuple(
            node.node
            for node in world.nodes[:PROPOSERS]
            if node.node not in state.gone_s and state.dead.get(node.node) != node.incarnation
        )
        if alive:
            return alive
    return state.oldest or ()


def look(state: JobState, reason: Reason, *, now_s: float, is_own: bool = False) -> JobState:
    """Note that the world should be looked at, and how soon."""
    turn = proposers(state)
    if state.me.node not in turn and not (is_own and state.has_all_members):
        return state
    if reason is Reason.COLLECTIVE_BROKEN:
        delay_s = SECONDARY_GRACE_S
    elif state.world is None or reason is Reason.JOINED:
        delay_s = state.spec.join_window_s
    elif reason in LOSS_WINDOW_S:
        delay_s = LOSS_WINDOW_S[reason]
    else:
        delay_s = 0.0
    if state.world is not None and state.formed_s is None and not state.is_world_ended:
        delay_s = max(delay_s, BURST_WINDOW_S)
    if not (is_own and delay_s == 0.0) and state.me.node in turn:
        delay_s += turn.index(state.me.node) * STAGGER_S
    due_s = now_s + delay_s
    return replace(
        state, plan_at_s=due_s if state.plan_at_s is None else min(due_s, state.plan_at_s)
    )


def propose(state: JobState, *, now_s: float) -> tuple[JobState, tuple[Effect, ...]]:
    """If it is time to look: end the job, ask for a world, or say for whom it waits."""
    if state.plan_at_s is None or state.plan_at_s > now_s or not may_propose(state):
        return state, ()
    state = replace(state, plan_at_s=None)
    ending = _ending(state)
    if ending is not None:
        return _write_status(state, ending)
    target = target_nodes(state.spec, state.wants)
    is_late = state.is_formation_late and state.formed_s is None
    if state.is_formation_late:
        next_s = now_s + state.spec.formation_timeout_s
        state = replace(state, is_formation_late=False, formation_deadline_s=next_s)
    own = desired_member(state)
    view = _with_own(state, own)
    change = find_change(view, target, is_late)
    if change is None:
        return state, ()
    failed = _failed(state, change, now_s)
    if failed is not None:
        return _write_status(state, failed)
    if state.world is None:
        wait_s = _first_world_wait_s(state, target, now_s)
        if wait_s is not None:
            return replace(state, plan_at_s=wait_s), ()
    planned = plan_world(view, change, now_s=now_s)
    if isinstance(planned, Wait):
        return _say_wait(state, change, planned, now_s)
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
    )
    timing = dataclasses.replace(state.timing, proposed_s=now_s)
    state = replace(state, proposal=planned.token, timing=timing)
    if is_changed:
        state = replace(state, member_sent=own, is_member_in_flight=True)
    return state, (effect,)


def may_propose(state: JobState) -> bool:
    """True if nothing that we know or have under way forbids to propose now.

    World and status change together, but are seen one after the other: in between, the budget of
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
    """Our own news need not make the round through etcd: the proposal takes it along."""
    seen = state.members.get(state.me.node)
    if seen is None or seen.member.incarnation != own.incarnation:
        return state
    return replace(
        state, members=state.members.with_item(own.node, dataclasses.replace(seen, member=own))
    )


def _ending(state: JobState) -> JobStatus | None:
    """The final status, if the job is done or was told to stop."""
    assert state.status is not None
    world = state.world
    if world is not None and state.ok_ranks >= world.size:
        return dataclasses.replace(
            state.status,
            phase=Phase.SUCCEEDED,
            generation=world.generation,
            reason=Reason.ALL_SUCCEEDED,
            message=f"all {world.size} ranks of generation {world.generation} exited with 0",
        )
    if any(want.is_stop for want in state.wants.values()):
        return dataclasses.replace(
            state.status,
            phase=Phase.STOPPED,
            reason=Reason.STOP_REQUESTED,
            message=next((w.why for w in state.wants.values() if w.is_stop and w.why), "stopped"),
        )
    return None


def _failed(state: JobState, change: Change, now_s: float) -> JobStatus | None:
    """The final status, if this change may not be paid for, or would only repeat an error."""
    status, cause = state.status, change.reason.cause
    assert status is not None
    if state.world is None or state.is_world_ended or cause is None:
        return None
    culprit = change.culprit
    failed = dataclasses.replace(
        status, phase=Phase.FAILED, generation=state.world.generation, failure=culprit
    )
    if culprit is not None and _is_repeated(status.last_user_error, culprit):
        return dataclasses.replace(
            failed,
            reason=Reason.REPEATED_ERROR,
            message="the same exception at the same line in two generations in a row, and no "
            "process group was ever formed: restarting will not help",
        )
    if not _budget(state, now_s).is_spent(cause, state.spec.limits):
        return None
    limit = getattr(state.spec.limits, cause.value)
    return dataclasses.replace(
        failed,
        reason=Reason.BUDGET_SPENT,
        message=f"the restart budget for {_PAID[cause]} is spent: {limit} used of {limit}"
        if limit
        else f"no restart is allowed for {_PAID[cause]}",
    )


def _is_repeated(last: Failure | None, culprit: Failure) -> bool:
    return (
        last is not None
        and culprit.generation == last.generation + 1
        and culprit.is_same_error(last)
        and culprit.has_group is False
        and last.has_group is False
    )


def _budget(state: JobState, now_s: float) -> Budget:
    """What is used of the budget; a world that stood long enough has refilled it."""
    assert state.status is not None
    refill_s = state.spec.limits.refill_after_s
    if state.formed_s is not None and now_s - state.formed_s >= refill_s:
        return Budget()
    return state.status.budget


def _running_status(state: JobState, change: Change, world: World, now_s: float) -> JobStatus:
    assert state.status is not None
    budget, cause = _budget(state, now_s), change.reason.cause
    is_charged = state.world is not None and not state.is_world_ended and cause is not None
    user_error = change.culprit if change.reason.cause is Cause.USER_ERROR else None
    return JobStatus(
        phase=Phase.RUNNING,
        generation=world.generation,
        reason=world.reason,
        message=without(change.lost),
        budget=budget.charged(cause) if is_charged and cause is not None else budget,
        restarts=world.restarts,
        failure=change.culprit,
        last_user_error=user_error,
        unknown=state.status.unknown,
    )


def _first_world_wait_s(state: JobState, target: int, now_s: float) -> float | None:
    """Give members that are here, but still importing, time to be in the first world."""
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
    state: JobState, change: Change, wait: Wait, now_s: float
) -> tuple[JobState, tuple[Effect, ...]]:
    """Record below-min as the job's status, once; other waits are nobody's concern."""
    state = replace(state, plan_at_s=wait.until_s)
    if not wait.is_below_min:
        return state, ()
    world, before = state.world, state.status
    assert before is not None
    status = dataclasses.replace(
        before,
        phase=Phase.PENDING if world is None else Phase.WAITING,
        generation=before.generation if world is None else world.generation,
        reason=Reason.FIRST_WORLD if world is None else change.reason,
        message="; ".join(filter(None, (f"waiting for {wait.message}", without(change.lost)))),
        failure=change.culprit,
    )
    if (status.phase, status.message) == (before.phase, before.message):
        return state, ()
    if world is not None and not state.is_world_ended and change.reason.cause is not None:
        status = dataclasses.replace(
            status, budget=_budget(state, now_s).charged(change.reason.cause)
        )
    return _write_status(state, status)


def _write_status(state: JobState, status: JobStatus) -> tuple[JobState, tuple[Effect, ...]]:
    effect = WriteStatus(status=status, revision=state.status_revision)
    return replace(state, is_status_in_flight=True), (effect,)

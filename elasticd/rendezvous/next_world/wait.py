"""Why no world can be planned now: members are missing, an earlier world may still run, or other
ranks may still tell what is behind the change.

Two worlds that have no node in common could both train. So the next one either has a node that was
in the oldest world that may still run, and ends it there, or waits until that world has surely
ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.records.ids import Generation, names
from elasticd.records.job import nodes_missing
from elasticd.records.reason import Reason
from elasticd.records.world import World
from elasticd.rendezvous.next_world.change import WorldChange, alike, has_newcomer, offers_of
from elasticd.rendezvous.next_world.node_condition import (
    has_ended,
    is_same_life,
    is_silent,
    is_useless,
    may_come_back,
)
from elasticd.rendezvous.state import CauseWait, JobState, Past, SeenMember

__all__ = [
    "ALIKE_GRACE_S",
    "CAUSE_MOST_S",
    "ISOLATION_MARGIN_S",
    "SECONDARY_GRACE_S",
    "WORD_WINDOW_S",
    "Wait",
    "cause_wait",
    "is_culprit_awaited",
    "past_of",
    "too_early_to_join",
    "unended",
    "unproved_end",
    "wait_for_members",
]

ISOLATION_MARGIN_S = 5.0
"""How far two clocks run apart at most over an isolation limit, with room for a late kill."""

PAST_POLL_S = 0.5
"""The time between looks whether a node of a world that etcd has lost is back: a join alone causes
no look while another one is due."""

PROBE_S = 2.0
"""How long a probe takes: an agent that has not ended answers within a second, or not at all."""


SECONDARY_GRACE_S = 0.1
"""How long to wait for the cause of a broken collective, which is a consequence of another failure
that is most likely being reported. In restart mode any exception may be one."""
ALIKE_GRACE_S = 0.3
"""How long ranks have to show the same error: a bug of the script strikes all ranks at about the
same time, and then no other world helps."""
CAUSE_MOST_S = 2.0
"""How long either is waited for at most. As long as no rank fell out of a collective or raised
anything else, all may still raise the same: a rank that waits for one that is gone reports it at
once. Where some fell out of one, over Gloo, each of the others that lives says so soon, or was the
cause; one that computes may not. Who waits on a GPU never does, and is not waited for."""
WORD_WINDOW_S = 0.02
"""How long to gather the words of ranks that fell out of a collective, so that not each of them is
looked at alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """No world can be planned now."""

    message: str
    """What is missing, as the rest of a sentence that begins with "waiting for"."""
    until_s: float | None = None
    """When to look again; None if only a new fact can change it."""
    is_below_min: bool = False
    is_for_state: bool = False
    """True if records are missing that may tell of the state."""
    is_for_handover: bool = False
    """True if a node that goes by itself waits for another that can take the state over."""
    is_in_vain: bool = False
    """True if too few nodes are left that can start workers, and no others will come."""


def wait_for_members(
    state: JobState,
    chosen: Sequence[SeenMember],
    held: Sequence[tuple[float, SeenMember]],
    now_s: float,
) -> Wait:
    """Return what the job waits for where too few nodes can take part: each group by its names."""
    message = nodes_missing(state.spec, len(chosen))
    preparing = [
        s.member.node
        for s in state.members.values()
        if not offers_of(state, s.member)
        and s.member.leaving is None
        and not is_useless(s.member)
        and not s.member.is_unable_to_start
    ]
    if preparing:
        message += f"; preparing: {names(preparing)}"
    useless = [s.member.node for s in state.members.values() if is_useless(s.member)]
    if useless:
        message += f"; left out, as process after process ended there: {names(useless)}"
    waiting = [(until_s, s.member.node) for until_s, s in held if until_s > now_s]
    if waiting:
        message += f"; held back after repeated losses: {names([n for _, n in waiting])}"
    rest = len(state.members) - len(useless)
    is_in_vain = bool(useless) and state.spec.is_local and rest < state.spec.min_nodes
    return Wait(
        message=message,
        until_s=min((until_s for until_s, _ in waiting), default=None),
        is_below_min=True,
        is_in_vain=is_in_vain and not may_come_back(state),
    )


def too_early_to_join(
    state: JobState,
    chosen: Sequence[SeenMember],
    held: Sequence[tuple[float, SeenMember]],
    now_s: float,
) -> Wait | None:
    """Return whether a join waits for a formation, or because newcomers are held back."""
    world = state.world
    if world is None:
        return None
    if state.formed_s is None:
        return Wait(message="the standing world to form")
    is_same = all(world.has(s.member.node, s.member.incarnation) for s in chosen)
    if is_same and not (state.is_in_process and has_newcomer(state, world, len(chosen))):
        times = [until_s for until_s, _ in held if until_s > now_s]
        return Wait(message="a newcomer held back", until_s=min(times, default=None))
    return None


def unproved_end(state: JobState, chosen: Sequence[SeenMember], now_s: float) -> Wait | None:
    """Check rule 4: worlds without a common node could both run, unless the first has ended.

    `elasticd/rendezvous/invariant.py` lists the rules.
    """
    if state.past.world is not None and (wait := _wait_for_lost_world(state, now_s)) is not None:
        return wait
    world = state.world
    if world is None or _shares_unended(state, world, chosen):
        return None
    limit_s = state.spec.isolation_limit_s + ISOLATION_MARGIN_S
    alive, gone, asked = [], [], []
    for node in world.nodes:
        if has_ended(state, world, node):
            continue
        seen = state.members.get(node.node)
        if seen is not None and is_same_life(node, seen.member):
            alive.append(node.node)  # Stops as soon as the status says that its world is over.
        elif (until_s := state.gone_s.get(node.node, now_s) + limit_s) > now_s:
            gone.append((until_s, node.node))
            if seen is not None:
                asked.append(until_s - limit_s + PROBE_S)
    if not alive and not gone:
        return None
    if len(asked) == len(gone) and not alive and now_s < max(asked):
        # Their agents were started anew; if that is all, their old addresses say so at once.
        return Wait(message="an answer from where the agents before were", until_s=max(asked))
    message = f"node {names(alive)} to stop its workers" if alive else ""
    if gone:
        message += "; and for " if message else ""
        message += (
            f"the end of {names([name for _, name in gone])}, which vanished without a goodbye "
            f"and may still train for up to {limit_s:.0f} s"
        )
    last_s = max((until_s for until_s, _ in gone), default=None)
    return Wait(message=message, until_s=None if alive else last_s, is_below_min=True)


def _wait_for_lost_world(state: JobState, now_s: float) -> Wait | None:
    """Return the wait for the end of a world that we knew, and that etcd does not know any more."""
    lost = state.lost_world
    if lost is None or _has_lost_ended(state, lost, now_s):
        return None
    left = [node.node for node in lost.nodes if not has_ended(state, lost, node)]
    return Wait(
        message=f"the end of generation {lost.generation} on {names(left)}: etcd does not know it "
        "any more, as it was restored from a backup, and it may still train",
        until_s=min(state.past.ended_s, now_s + PAST_POLL_S),
        is_below_min=True,
    )


def _has_lost_ended(state: JobState, world: World, now_s: float) -> bool:
    """Return whether a world that etcd has lost has surely ended.

    That is so if one of its nodes is back: its agent has ended the workers of the oldest world that
    might still run, and took up another incarnation then.
    """
    if now_s >= state.past.ended_s:
        return True
    for node in world.nodes:
        seen = state.members.get(node.node)
        if seen is None or not is_same_life(node, seen.member) or node.since > world.unended:
            continue
        if seen.member.incarnation != node.incarnation:
            return True
    return all(has_ended(state, world, node) for node in world.nodes)


def past_of(state: JobState, *, lease_ttl_s: float, now_s: float) -> Past:
    """Return what the next incarnation of this agent is to know of the job.

    A node that hears nothing of a restored etcd lets its workers run for as long as its lease and
    the isolation limit last, and renewed its lease before we came to know of the restore.
    """
    before, world = state.past, state.world
    generation = Generation(state.next_generation - 1)
    if world is None or state.lost_world is not None:
        return Past(generation=generation, world=before.world, ended_s=before.ended_s)
    limit_s = lease_ttl_s + state.spec.isolation_limit_s + ISOLATION_MARGIN_S
    return Past(generation=generation, world=world, ended_s=now_s + limit_s)


def _shares_unended(state: JobState, world: World, chosen: Sequence[SeenMember]) -> bool:
    """Return whether a chosen node was already in the oldest world that may still run, and ends it.

    The standing world alone is not enough: if that never formed, its survivors may not have stopped
    the workers of the world before, and a newcomer to it proves nothing.
    """
    oldest = _oldest_unended(state, world)
    return any(
        node is not None and node.incarnation == seen.member.incarnation and node.since <= oldest
        for seen in chosen
        if (node := world.node(seen.member.node)) is not None
    )


def _oldest_unended(state: JobState, world: World) -> Generation:
    return world.generation if state.formed_s is not None else world.unended


def unended(state: JobState, chosen: Sequence[SeenMember], generation: Generation) -> Generation:
    """Return what the next world says of those before it."""
    world = state.world
    if world is None or not _shares_unended(state, world, chosen):
        return generation  # All of them were proved over.
    return _oldest_unended(state, world)


def cause_wait(state: JobState, change: WorldChange, now_s: float) -> CauseWait | None:
    """Return how long the change waits for ranks' reports of its cause; None if it does not wait.

    The world has one such wait: where a collective broke, the ranks did not all raise the same.
    """
    world = state.world
    if world is None or not state.is_in_process or state.is_world_ended:
        return None
    if change.reason is Reason.WORKER_FAILED:
        grace_s, is_open = ALIKE_GRACE_S, alike(state, world).failure is not None
    elif change.reason is Reason.COLLECTIVE_BROKEN:
        grace_s, is_open = SECONDARY_GRACE_S, _may_name_culprit(state, world)
    else:
        return None
    before = state.cause_wait
    until_s = before.until_s if before is not None else now_s + CAUSE_MOST_S - grace_s
    return CauseWait(reason=change.reason, until_s=until_s) if is_open and now_s < until_s else None


def is_culprit_awaited(state: JobState) -> bool:
    """Return whether ranks that have not reported yet may know which rank broke the collective."""
    awaited = state.cause_wait
    return awaited is not None and awaited.reason is Reason.COLLECTIVE_BROKEN


def _may_name_culprit(state: JobState, world: World) -> bool:
    """Return whether a rank may tell that it broke the collective of the others.

    Else the change would have no cause, and the rank that raised would cost another one.
    """
    is_told = any(seen.member.broken == world.generation for seen in state.members.values())
    if not is_told or state.formed_s is None:
        return False
    return any(is_silent(state, world, node) for node in world.nodes)

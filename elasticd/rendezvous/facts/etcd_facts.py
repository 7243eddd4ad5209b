"""Takes facts from etcd into the state: the half of `decide` that causes no effects.

Each function takes one event and returns the new state, with a note to look at the world if the
fact could matter to it. All are cheap: a pass over all members happens when a list arrives or a
world is planned, not per event.
"""

import dataclasses
from collections.abc import Mapping

from elasticd.records.ids import Generation, Incarnation, NodeId, life_of
from elasticd.records.job import JobStatus
from elasticd.records.member import Member
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.event import (
    MemberDeleted,
    MemberSeen,
    MembersListed,
    OldestFound,
    PeerDied,
    StatusSeen,
    WantsListed,
    WorldSeen,
)
from elasticd.rendezvous.facts.result_facts import count_ok_ranks
from elasticd.rendezvous.next_world.change import change_of_node, has_new_process, is_candidate
from elasticd.rendezvous.next_world.node_condition import (
    is_found_dead,
    is_same_life,
    is_world_missed,
)
from elasticd.rendezvous.next_world.propose import PROPOSERS, schedule_proposal
from elasticd.rendezvous.persistent_map import PersistentMap
from elasticd.rendezvous.state import (
    JobState,
    SeenMember,
    Timing,
    due_in_s,
    replace,
)

__all__ = [
    "member_deleted",
    "member_seen",
    "members_listed",
    "oldest_found",
    "peer_died",
    "status_seen",
    "wants_listed",
    "world_seen",
]


WORLD_PATIENCE_S = 1.0
"""From the status of a world to the world itself; etcd takes less between two watches."""


def members_listed(state: JobState, event: MembersListed, now_s: float) -> JobState:
    """Replace what was known by a list: of all members, or of the few that were asked for."""
    if (event.watched is None) != (state.observed is None):
        return state  # An answer to what we watched before.
    before = state.members
    members = PersistentMap(
        (member.node, _seen(before, member, created, modified, now_s))
        for member, created, modified in event.members
    )
    state = replace(
        state,
        members=members,
        members_revision=max(state.members_revision, event.revision),
        deleted=PersistentMap(),
        has_all_members=event.watched is None,
        is_in_process=state.is_in_process
        or any(member.is_in_process for member, _, _ in event.members),
    )
    if any(_ended_pause(state, seen, members.get(seen.member.node)) for seen in before.values()):
        state = _with_time_to_form(state, now_s)
    state = _recounted(state, now_s, asked=event.watched)
    if event.watched is None or state.me.node in event.watched:
        state = _own_missed(state)
    return schedule_proposal(state, Reason.NODE_LOST, now_s=now_s)


def member_seen(state: JobState, event: MemberSeen, now_s: float) -> JobState:
    member = event.member
    before = state.members.get(member.node)
    known_revision = before.mod_revision if before else state.deleted.get(member.node) or 0
    if event.mod_revision <= known_revision:
        return state
    seen = _seen(state.members, member, event.create_revision, event.mod_revision, now_s)
    arrived = state.arrived + _arrival(state, seen) - _arrival(state, before)
    if not state.is_in_process and member.is_in_process:
        # Whoever comes later must be told so.
        state = schedule_proposal(replace(state, is_in_process=True), Reason.JOINED, now_s=now_s)
    state = replace(
        state,
        members=state.members.with_item(member.node, seen),
        # Not the event's own: several changes may be told as of the last one's revision.
        members_revision=max(state.members_revision, event.mod_revision),
        arrived=arrived,
        gone_s=_gone_s(state, member, now_s),
    )
    if _ended_pause(state, before, seen):
        state = _with_time_to_form(state, now_s)
    state = _formed(state, now_s)
    return _look_at(state, member.node, now_s)


def member_deleted(state: JobState, event: MemberDeleted, now_s: float) -> JobState:
    seen = state.members.get(event.node)
    if seen is not None and event.revision < seen.mod_revision:
        return state
    state = replace(
        state,
        members=state.members.without(event.node),
        deleted=state.deleted.with_item(event.node, seen.mod_revision if seen else 0),
        arrived=state.arrived - _arrival(state, seen),
    )
    if state.world is not None and state.world.node(event.node) is not None:
        state = replace(state, gone_s={event.node: now_s, **state.gone_s})
    state = _not_oldest(state, event.node)
    if event.node == state.me.node:
        state = _own_missed(state)
    return _look_at(state, event.node, now_s)


def oldest_found(state: JobState, event: OldestFound, now_s: float) -> JobState:
    """Store the oldest members. One found dead needs a new life, so a new place in the order."""
    if not event.nodes:
        state = _own_missed(state)
    alive = tuple(node for node in event.nodes if not is_found_dead(state, node))[:PROPOSERS]
    return schedule_proposal(
        replace(state, oldest=alive, is_oldest_asked=False), Reason.NODE_LOST, now_s=now_s
    )


def peer_died(state: JobState, event: PeerDied, now_s: float) -> JobState:
    """Accuse every known incarnation of that life; others are not concerned."""
    seen = state.members.get(event.node)
    node = state.world.node(event.node) if state.world is not None else None
    known = [seen.member.incarnation] if seen is not None else []
    if node is not None:
        known.append(node.incarnation)
    accused = {incarnation for incarnation in known if life_of(incarnation) == event.life}
    if not accused:
        return state
    state = replace(state, dead=state.dead | accused)
    if is_found_dead(state, event.node):
        state = _not_oldest(state, event.node)
    return schedule_proposal(state, Reason.NODE_DEAD, now_s=now_s)


def world_seen(state: JobState, event: WorldSeen, now_s: float) -> JobState:
    """Replace the standing world by a newer one; what was counted for the old one starts anew."""
    world = event.world
    if event.revision <= state.world_revision or state.is_over:
        return state  # What comes after the end belongs to another job of the same name.
    if _is_of_another(state, world.uid):
        return replace(state, is_replaced=True, status=state.status or JobStatus())
    is_new = state.world is None or world.generation > state.world.generation
    if not is_new:
        return replace(state, world_revision=event.revision)
    state = replace(state, world=world, world_revision=event.revision)
    grace_s = (
        state.spec.shutdown_timeout_s if world.reason.is_planned else state.spec.failure_timeout_s
    )
    due_s = due_in_s(state.pace, world)
    state = replace(
        state,
        oldest=None,
        is_oldest_asked=False,
        formed_s=None,
        is_formation_overdue=False,
        unheard_s=None,
        handover_s=None,
        formation_deadline_s=now_s + grace_s + state.spec.formation_timeout_s + due_s,
        lost_races=0,
        cause_wait=None,
        join_at_s=None,
        gone_s={},
        dead=state.dead & _named(state, world) if state.dead else state.dead,
        # A world without us does not wait for us: what we saw before it is no part of the next one.
        timing=dataclasses.replace(state.timing, world_s=now_s)
        if world.has(state.me.node, state.me.incarnation)
        else Timing(),
    )
    state = _recounted(state, now_s, asked=() if not state.has_all_members else None)
    # Facts that came between the plan and the record are looked at once more.
    return schedule_proposal(state, Reason.JOINED, now_s=now_s)


def status_seen(state: JobState, event: StatusSeen, now_s: float) -> JobState:
    if event.revision <= state.status_revision or state.is_over:
        return state
    before = state.status
    if event.status is None:
        # Before we ever saw it, it is yet to come; afterwards the job was cleared away.
        return state if before is None else replace(state, status=None, is_replaced=True)
    if _is_of_another(state, event.status.uid):
        return replace(state, is_replaced=True, status=before or event.status)
    state = replace(
        state,
        status=event.status,
        status_revision=event.revision,
        is_in_process=state.is_in_process or event.status.is_in_process,
    )
    if is_world_missed(state):
        state = replace(state, world_due_s=now_s + WORLD_PATIENCE_S)
    if event.status.phase is Phase.WAITING:
        is_same = before is not None and _place(before) == _place(event.status)
        state = state if is_same else replace(state, ended_s=now_s)
    if before is not None and _place(before) == _place(event.status):
        return state  # Another wording: two proposers that know different things could go on so.
    return schedule_proposal(state, Reason.JOINED, now_s=now_s)


def wants_listed(state: JobState, event: WantsListed, now_s: float) -> JobState:
    return schedule_proposal(replace(state, wants=event.wants), Reason.SCALED, now_s=now_s)


def _look_at(state: JobState, name: NodeId, now_s: float) -> JobState:
    """Note a look if what this one node now reports does not fit the world."""
    world = state.world
    seen = state.members.get(name)
    node = world.node(name) if world is not None else None
    if world is None or node is None:
        if seen is not None and is_candidate(state, seen):
            return schedule_proposal(state, Reason.JOINED, now_s=now_s)
        return state
    reason, _ = change_of_node(state, world, node, is_overdue=False)
    if reason is None and not state.is_world_ended:
        if seen is not None and seen.member.standstill is not None:
            return schedule_proposal(state, Reason.WORKER_HUNG, now_s=now_s)
        if seen is None or not has_new_process(state, node, seen):
            return state
    is_own = name == state.me.node
    return schedule_proposal(state, reason or Reason.JOINED, now_s=now_s, is_own=is_own)


def _seen(
    before: PersistentMap[SeenMember], member: Member, created: int, modified: int, now_s: float
) -> SeenMember:
    known = before.get(member.node)
    is_same = known is not None and known.member.incarnation == member.incarnation
    return SeenMember(
        member=member,
        create_revision=created,
        mod_revision=modified,
        seen_s=known.seen_s if known is not None and is_same else now_s,
    )


def _recounted(state: JobState, now_s: float, *, asked: tuple[NodeId, ...] | None) -> JobState:
    """Count anew what is otherwise kept up to date event by event.

    `asked`: the nodes whose absence from the members means something; None for all.
    """
    world = state.world
    if world is None:
        gone = [] if asked is None or state.oldest is None else list(state.oldest)
        if gone:
            kept = tuple(n for n in gone if n in state.members or n not in (asked or ()))
            return replace(state, oldest=kept, arrived=0, ok_ranks=0)
        return replace(state, arrived=0, ok_ranks=0, gone_s={})
    if asked is None:
        absent = [node.node for node in world.nodes if not _is_here(state, node)]
    else:
        # Nothing new was heard of the others: those that were gone still are.
        absent = [n for n in state.gone_s if n not in asked and world.node(n) is not None]
        named = (node for name in asked if (node := world.node(name)) is not None)
        absent += [node.node for node in named if not _is_here(state, node)]
        # Where all of the world's are gone the oldest propose: one of them may be gone as well.
        if any(n in asked and n not in state.members for n in state.oldest or ()):
            state = replace(state, oldest=None, is_oldest_asked=False)
    state = replace(
        state,
        arrived=sum(_arrival(state, seen) for seen in state.members.values()),
        ok_ranks=sum(count_ok_ranks(world, result) for result in state.results.values()),
        gone_s={node: state.gone_s.get(node, now_s) for node in absent},
    )
    return _formed(state, now_s)


def _formed(state: JobState, now_s: float) -> JobState:
    world = state.world
    if world is None or state.formed_s is not None or not state.has_all_members:
        return state
    if state.arrived < len(world.nodes):
        return state
    # Whoever came meanwhile had to wait for it.
    return schedule_proposal(replace(state, formed_s=now_s), Reason.JOINED, now_s=now_s)


def _ended_pause(state: JobState, before: SeenMember | None, seen: SeenMember | None) -> bool:
    """Return whether a node of a forming world was in a pause, in which no step is made."""
    if state.world is None or state.formed_s is not None or before is None or seen is None:
        return False
    is_over = before.member.is_paused and not seen.member.is_paused
    return is_over and state.world.node(seen.member.node) is not None


def _with_time_to_form(state: JobState, now_s: float) -> JobState:
    """Restart the world's time to form, because its nodes could not use the rest of that time."""
    deadline_s = now_s + state.spec.formation_timeout_s
    return replace(state, is_formation_overdue=False, formation_deadline_s=deadline_s)


def _arrival(state: JobState, seen: SeenMember | None) -> int:
    """Return 1 if this member reports that it arrived in the standing world, otherwise 0."""
    if seen is None or state.world is None:
        return 0
    member = seen.member
    is_here = state.world.has(member.node, member.incarnation)
    return int(is_here and member.arrived == state.world.generation)


def _named(state: JobState, world: World) -> frozenset[Incarnation]:
    """Return the incarnations that this world or a member's record names; the rest is history."""
    members = (seen.member.incarnation for seen in state.members.values())
    return frozenset((*(node.incarnation for node in world.nodes), *members))


def _own_missed(state: JobState) -> JobState:
    """Write our record again, because it is not in etcd although we wrote it and hold a lease.

    Whoever deleted it, an unseen member would wait for ever.
    """
    is_sent = state.member_sent is not None and not state.is_member_in_flight
    if is_sent and not state.proposal and state.members.get(state.me.node) is None:
        return replace(state, member_sent=None)
    return state


def _not_oldest(state: JobState, node: NodeId) -> JobState:
    if state.oldest is None or node not in state.oldest:
        return state
    return replace(state, oldest=tuple(n for n in state.oldest if n != node))


def _is_of_another(state: JobState, uid: str) -> bool:
    """Return whether the record is another job's of this name; old versions write no uid."""
    return uid not in ("", state.spec.uid)


def _place(status: JobStatus) -> tuple[Phase, Generation]:
    return status.phase, status.generation


def _is_here(state: JobState, node: WorldNode) -> bool:
    """Return whether the agent that the world names has a record, of any incarnation."""
    seen = state.members.get(node.node)
    return seen is not None and is_same_life(node, seen.member)


def _gone_s(state: JobState, member: Member, now_s: float) -> Mapping[NodeId, float]:
    """Return since when which nodes are gone, now that this member was seen."""
    node = state.world.node(member.node) if state.world is not None else None
    if node is not None and not is_same_life(node, member):
        return {member.node: now_s, **state.gone_s}
    if member.node not in state.gone_s:
        return state.gone_s
    return {name: at_s for name, at_s in state.gone_s.items() if name != member.node}

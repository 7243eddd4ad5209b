"""Whether the standing world still fits the facts, and if not, the main reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.records.failure import Failure
from elasticd.records.ids import NodeId
from elasticd.records.member import Member, SlotOffer
from elasticd.records.reason import Cause, Reason
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous.culprit import Found, first_cause, is_state_lost
from elasticd.rendezvous.next_world.hang import find_hang
from elasticd.rendezvous.next_world.job_end import is_ending, is_of_no_interest
from elasticd.rendezvous.next_world.network_partition import partitioned_nodes
from elasticd.rendezvous.next_world.node_condition import (
    has_left,
    has_lost_worker,
    has_state,
    is_dead,
    is_finished,
    is_going,
)
from elasticd.rendezvous.state import JobState, SeenMember

__all__ = [
    "SharedError",
    "WorldChange",
    "alike",
    "change_of_node",
    "find_change",
    "has_new_process",
    "has_newcomer",
    "is_candidate",
    "offers_in",
    "offers_of",
    "offers_state",
]

_BY_SEVERITY = (
    Reason.WORKER_FAILED,
    Reason.WORKER_KILLED,
    Reason.WORKER_HUNG,
    Reason.NO_OUTPUT,
    Reason.NODE_DEAD,
    Reason.NODE_LOST,
    Reason.NODE_RETURNED,
    Reason.DID_NOT_ARRIVE,
    Reason.CUT_OFF,
    Reason.COLLECTIVE_BROKEN,
    Reason.OTHER,
    Reason.PREEMPTED,
    Reason.NODE_LEFT,
    Reason.DRAINED,
    Reason.SCALED,
    Reason.JOINED,
)
"""The reasons in the order of their severity. When several things happened, the most severe one
names the change: a node that died explains a broken collective, a failure explains why somebody
left. A word that is not here is one of a newer version for why a node leaves, like OTHER."""


_BROKEN = Reason.COLLECTIVE_BROKEN
_OF_WORKERS = frozenset(
    {
        Reason.WORKER_FAILED,
        Reason.WORKER_KILLED,
        Reason.WORKER_HUNG,
        Reason.COLLECTIVE_BROKEN,
    }
)
"""Reasons with which the node itself is well and can be in the next world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldChange:
    """Why the next world is needed."""

    reason: Reason
    culprit: Failure | None = None
    lost: Mapping[NodeId, Reason] = field(default_factory=dict)
    """Nodes of the standing world that may not be in the next one, and why."""
    is_orderly: bool = False
    """True if nothing is broken: workers can train on until a step that all agree on."""
    is_of_slot: bool = False
    """True if process after process fails in one slot, and others train on without it."""
    begins_anew: bool = False
    """True if the loss that the standing world began with took the state away: it is named once
    more, and was paid for already."""

    @property
    def cause(self) -> Cause | None:
        """Return the budget that pays for it: a slot that never works is no error of the script."""
        if self.begins_anew:
            return None
        return Cause.NODE_LOSS if self.is_of_slot else self.reason.cause


def find_change(state: JobState, target: int, is_overdue: bool) -> WorldChange | None:
    """Compare the world with the members; None if it may stand. It costs one pass over both.

    `target` is the wished number of nodes; `is_overdue` says that the formation's deadline passed.
    """
    world = state.world
    if world is None:
        return WorldChange(reason=Reason.FIRST_WORLD)
    is_overdue = is_overdue and not state.is_world_ended  # Nobody is to arrive there any more.
    # A step that is not made by then will not be: nobody is to blame for it but who is gone.
    is_stuck = is_overdue and world.at_step is not None
    is_end = is_ending(state, world)
    found, lost, is_orderly = _of_nodes(
        state, world, is_overdue=is_overdue and not is_stuck, is_end=is_end
    )
    if state.is_world_ended and state.status is not None:
        # Declared over for want of members: whoever is here now may go on. It keeps the reason
        # that it ended for; that its workers are gone by now is no news.
        return WorldChange(
            reason=state.status.reason,
            culprit=state.status.failure,
            lost=lost,
            begins_anew=is_state_lost(world, found),
        )
    if is_stuck and not is_end and not _has_paused(state, world):
        found.append((Reason.COLLECTIVE_BROKEN, None))
        is_orderly = False
    if not is_end:
        # A world whose ranks have begun to finish is not changed for its size.
        if len(world.nodes) > target:
            found.append((Reason.SCALED, None))
        elif has_newcomer(state, world, target):
            found.append((Reason.JOINED, None))
    # Something that broke explains why nobody gets on, a wish does not.
    if all(reason.is_planned for reason, _ in found):
        hung = find_hang(state, world)
        if hung is not None:
            found.append(hung)
            is_orderly = False
    return _most_severe(state, world, found, lost, is_orderly=is_orderly) if found else None


def _of_nodes(
    state: JobState, world: World, *, is_overdue: bool, is_end: bool
) -> tuple[Found, dict[NodeId, Reason], bool]:
    """Return what happened to the nodes of the world, which are lost, and whether all is in order.

    Nodes that leave are in order too, as long as they train on until a step on which all agreed.
    """
    found: Found = []
    lost: dict[NodeId, Reason] = {}
    is_orderly = True
    changes = {
        node.node: change_of_node(state, world, node, is_overdue=is_overdue) for node in world.nodes
    }
    # Who is lost anyway is out of everybody's reach, and nobody else's fault.
    well = {name for name, (reason, _) in changes.items() if reason in (None, _BROKEN)}
    apart = partitioned_nodes(state, world, well) if state.is_in_process else frozenset()
    for node in world.nodes:
        reason, failure = changes[node.node]
        if node.node in apart:
            reason = Reason.CUT_OFF
        if reason is None or (is_end and is_of_no_interest(state, world, node, reason)):
            continue
        found.append((reason, failure))
        is_orderly = is_orderly and is_going(state, node, reason)
        if reason not in _OF_WORKERS:
            lost[node.node] = reason
    return found, lost, is_orderly


def _most_severe(
    state: JobState,
    world: World,
    found: Found,
    lost: Mapping[NodeId, Reason],
    *,
    is_orderly: bool,
) -> WorldChange:
    """Return the change that the most severe of the reasons found names, with its culprit."""
    if is_state_lost(world, found):
        return WorldChange(reason=world.reason, culprit=world.culprit, lost=lost, begins_anew=True)
    found = first_cause(state, world, found)
    reason = min((r for r, _ in found), key=_severity)
    culprits = [failure for r, failure in found if r is reason and failure is not None]
    culprit = min(culprits, key=lambda f: (not f.ends_job, f.rank)) if culprits else None
    return WorldChange(
        reason=reason,
        culprit=culprit,
        lost=lost,
        is_orderly=is_orderly,
        is_of_slot=reason is Reason.WORKER_FAILED
        and bool(culprits)
        and all(failure.in_a_row > 1 for failure in culprits)
        and _has_survivor(state, world),
    )


def _severity(reason: Reason) -> int:
    return _BY_SEVERITY.index(reason if reason in _BY_SEVERITY else Reason.OTHER)


def change_of_node(
    state: JobState, world: World, node: WorldNode, *, is_overdue: bool
) -> tuple[Reason | None, Failure | None]:
    """Return what happened to one node of the world; (None, None) if it is as it should be."""
    if is_finished(state, world, node):
        return None, None
    seen = state.members.get(node.node)
    if has_left(state, node):
        return Reason.NODE_LEFT, None
    if is_dead(state, node.incarnation):
        return Reason.NODE_DEAD, None
    if seen is None:
        return Reason.NODE_LOST, None
    member = seen.member
    if member.incarnation != node.incarnation:
        return Reason.NODE_RETURNED, None
    if member.leaving is not None:
        return member.leaving, None
    if has_lost_worker(node, member):
        failure = member.failure
        is_known = failure is not None and failure.generation == world.generation
        if failure is not None and (is_known or _is_named(state, node, failure)):
            return failure.reason, failure
        return Reason.WORKER_KILLED, None
    if member.broken == world.generation:
        return Reason.COLLECTIVE_BROKEN, None
    if is_overdue and member.arrived < world.generation and not member.is_paused:
        return Reason.DID_NOT_ARRIVE, None
    return None, None


def _is_named(state: JobState, node: WorldNode, failure: Failure) -> bool:
    """Return whether the world names the very process, because nobody knew yet how it ended.

    That happens while etcd is away: the first agent that is back knows only of a broken collective.
    """
    process = (failure.slot, failure.nonce)
    return state.is_in_process and process in {(w.slot, w.nonce) for w in node.workers}


def _has_survivor(state: JobState, world: World) -> bool:
    """Return whether a process of this world still exists, with the state."""
    for node in world.nodes:
        seen = state.members.get(node.node)
        if seen is None or is_dead(state, node.incarnation):
            continue
        member = seen.member
        alive = {
            (o.slot, o.nonce) for o in member.slots if o.is_prepared and has_state(state, member, o)
        }
        if any((worker.slot, worker.nonce) in alive for worker in node.workers):
            return True
    return False


def is_candidate(state: JobState, seen: SeenMember) -> bool:
    """Return whether the member may be in the next world at all."""
    member = seen.member
    return (
        bool(offers_of(state, member))
        and member.leaving is None
        and not is_dead(state, member.incarnation)
        and not (
            state.world is not None and state.world.is_excluded(member.node, member.incarnation)
        )
    )


def offers_of(state: JobState, member: Member) -> tuple[SlotOffer, ...]:
    """Return the slots of this member that a world may name, at most as many as the job wants per
    node.

    In in-process mode these are slots whose process is up and waits in `elasticd.run`; those in the
    standing world come first.
    """
    offers = member.slots
    if state.is_in_process:
        node = state.world.node(member.node) if state.world is not None else None
        inside = {(w.slot, w.nonce) for w in node.workers} if node is not None else set()
        is_same = node is not None and node.incarnation == member.incarnation
        # What comes after a process that was named: that one itself is done with.
        least = {w.slot: w.nonce for w in node.workers} if node is not None and is_same else {}
        offers = tuple(
            sorted(
                (o for o in offers if o.is_prepared and o.nonce >= least.get(o.slot, 0)),
                key=lambda o: (
                    (o.slot, o.nonce) not in inside,
                    not has_state(state, member, o),
                    o.slot,
                ),
            )
        )
    limit = state.spec.workers_per_node
    return tuple(sorted(offers[:limit] if limit else offers, key=lambda offer: offer.slot))


def offers_in(state: JobState, change: WorldChange, member: Member) -> tuple[SlotOffer, ...]:
    """Return what the next world may name of this member, without a process that everybody waits
    for.
    """
    culprit, offers = change.culprit, offers_of(state, member)
    if culprit is None or not culprit.is_hung:
        return offers
    if (culprit.node, culprit.incarnation) != (member.node, member.incarnation):
        return offers  # Another incarnation numbers its processes anew.
    return tuple(o for o in offers if (o.slot, o.nonce) != (culprit.slot, culprit.nonce))


def offers_state(state: JobState, change: WorldChange, member: Member) -> bool:
    """Return whether the next world may name a process of this member that has the job's state."""
    return any(has_state(state, member, o) for o in offers_in(state, change, member))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedError:
    """The facts about an error that all ranks of a world may share."""

    failure: Failure | None = None
    """The error, as soon as one rank has ended with it and no other rank with anything else."""
    is_all: bool = False
    """True if every rank has ended with it."""


def alike(state: JobState, world: World) -> SharedError:
    """Compare how the ranks of the world ended; there is no `failure` if they differ, or if none
    has ended.

    A rank that is alone proves nothing: the error is the script's if it comes again.
    """
    first: Failure | None = None
    is_all = True
    for node in world.nodes:
        seen = state.members.get(node.node)
        if world.size < 2 or seen is None:
            return SharedError()
        if seen.member.incarnation != node.incarnation or is_dead(state, node.incarnation):
            return SharedError()  # It will raise nothing any more.
        if seen.member.broken == world.generation:
            return (
                SharedError()
            )  # A rank fell out of a broken collective, and did not raise by itself.
        if not has_lost_worker(node, seen.member):
            is_all = False
            continue
        failure = seen.member.failure
        if failure is None or failure.generation != world.generation or not failure.where:
            return SharedError()
        if first is not None and not failure.is_same_error(first):
            return SharedError()
        first = first or failure
        is_all = is_all and seen.member.raised_alike >= len(node.workers)
    return SharedError(failure=first, is_all=is_all and first is not None)


def _has_paused(state: JobState, world: World) -> bool:
    seen = (state.members.get(node.node) for node in world.nodes)
    return any(s is not None and s.member.is_paused for s in seen)


def has_newcomer(state: JobState, world: World, target: int) -> bool:
    """Return whether there is a node that could be taken in, or another process on a node of the
    world.
    """
    has_room = len(world.nodes) < target
    for seen in state.members.values():
        node = world.node(seen.member.node)
        if node is None:
            if has_room and is_candidate(state, seen):
                return True
        elif has_new_process(state, node, seen):
            return True
    return False


def has_new_process(state: JobState, node: WorldNode, seen: SeenMember) -> bool:
    """Return whether a node of the world offers a process that is not in the world."""
    if not state.is_in_process or not is_candidate(state, seen):
        return False
    inside = {(worker.slot, worker.nonce) for worker in node.workers}
    return any((o.slot, o.nonce) not in inside for o in offers_of(state, seen.member))

"""Plans the next world: a pure function of the facts, which always says why."""

from collections.abc import Sequence, Set

from elasticd.errors import NotSupported
from elasticd.records.codec import encode
from elasticd.records.ids import Generation, NodeId, Nonce, Rank, Slot, names
from elasticd.records.job import target_nodes
from elasticd.records.member import Member, StoreAddress
from elasticd.records.reason import Reason
from elasticd.records.world import World, WorldNode, WorldWorker
from elasticd.rendezvous.next_world.change import (
    WorldChange,
    is_candidate,
    offers_in,
    offers_state,
)
from elasticd.rendezvous.next_world.exclusion import exclusions, readmission_delay_s
from elasticd.rendezvous.next_world.handover import (
    awaited,
    handover_until_s,
    new_slots,
    state_sources,
    unheard,
    unheard_until_s,
)
from elasticd.rendezvous.next_world.ranks import order_nodes, with_ranks
from elasticd.rendezvous.next_world.wait import (
    Wait,
    too_early_to_join,
    unended,
    unproved_end,
    wait_for_members,
)
from elasticd.rendezvous.state import JobState, SeenMember

__all__ = ["plan_world"]

AHEAD_S = 0.01
"""The time from a proposal until nearly all workers know of it. The others wait for a worker that
hears of it later; a larger value would make every planned change take longer."""
PACE_LIMIT_S = 1.0
"""Workers report their pace more often than this, except in a pause."""
FIRST_STEP_POLL_S = 0.5
"""The time between looks for a first step; mostly the step itself causes another look."""

TARGET_POLL_S = 0.25
"""The time between looks for a node that can take the state over: a join alone causes no look
while another one is due."""

LARGE_NODES = 1000
"""Below this any world fits: compressed, each node takes less than 500 bytes, names and all."""

STORE_POLL_S = 0.05
"""The time between looks while only a fresh store is missing, which is on its way."""

NOTHING_SAVED = "Nothing had been saved before this loss, so the training begins anew."

CUT_RETRY_S = 20.0
"""The time between tries if no node can be left out: each try costs a formation."""


def plan_world(state: JobState, change: WorldChange, *, now_s: float) -> World | Wait:
    """Return the world that should follow the standing one, or why there can be none yet."""
    spec, previous = state.spec, state.world
    target = target_nodes(spec, state.wants)
    candidates = [s for s in state.members.values() if is_candidate(state, s)]
    late = _late(state, change)
    candidates = [s for s in candidates if s.member.node not in late]
    candidates = [s for s in candidates if offers_in(state, change, s.member)]
    held = [(_held_until_s(state, change, s), s) for s in candidates]
    ready = [s for until_s, s in held if until_s <= now_s]
    chosen = _choose(state, change, ready, target)
    chosen += state_sources(state, change, chosen)
    if len(chosen) < spec.min_nodes:
        wait = _wait_for_state_target(state, change, now_s)
        return wait or wait_for_members(state, chosen, held, now_s)
    silent = unheard(state, change, chosen, now_s)
    if silent:
        message = f"node {names(silent)} to tell whether it has the state"
        return Wait(message=message, until_s=unheard_until_s(state, now_s), is_for_state=True)
    if change.reason is Reason.JOINED and not state.is_world_ended:
        early = too_early_to_join(state, chosen, held, now_s)
        if early is not None:
            return early
    at_step = _at_step(state, change, now_s)
    if isinstance(at_step, Wait):
        return at_step
    blocked = unproved_end(state, chosen, now_s)
    if blocked is not None:
        return blocked
    generation = state.next_generation
    nodes = with_ranks(_world_nodes(state, change, chosen, generation))
    spent = _spent_stores(state)
    store = _fresh_store(state, nodes[0].node, spent)
    if store is None:
        return Wait(message=f"a fresh store on node {nodes[0].node}", until_s=now_s + STORE_POLL_S)
    is_first = previous is None
    world = World(
        uid=spec.uid,
        generation=generation,
        nodes=nodes,
        store=store,
        reason=Reason.FIRST_WORLD if is_first else change.reason,
        culprit=change.culprit,
        lost=_lost(previous, nodes, change),
        note=NOTHING_SAVED if change.begins_anew else "",
        excluded=exclusions(state, change, nodes, generation, now_s),
        proposer=state.me.node,
        token=f"{state.me.incarnation}/{generation}/{state.world_revision}/{state.lost_races}",
        planned_revision=state.members_revision,
        unended=unended(state, chosen, generation),
        spent_stores=spent,
        at_step=at_step,
        restarts=0 if is_first or previous is None else previous.restarts + 1,
    )
    return _too_large(state, change, world) or world


def _too_large(state: JobState, change: WorldChange, world: World) -> Wait | None:
    """Return why etcd would refuse the record, which would else be proposed for ever."""
    if len(world.nodes) + len(world.lost) + len(world.excluded) < LARGE_NODES:
        return None
    try:
        encode(world)
    except NotSupported:
        return Wait(
            message=f"fewer nodes: the record of a world of {len(world.nodes)} nodes with "
            f"{world.size} workers is larger than etcd takes; submit the job with a smaller "
            "--nnodes",
            is_below_min=state.world is None or not change.reason.is_planned,
        )
    return None


def _wait_for_state_target(state: JobState, change: WorldChange, now_s: float) -> Wait | None:
    """Return the wait for a node that can take the state over, if there is one and enough time."""
    target, until_s = awaited(state, change), handover_until_s(state, change, now_s)
    if not target or (until_s is not None and now_s >= until_s):
        return None
    return Wait(
        message=f"node {names(target)} to take the state over",
        until_s=min(until_s, now_s + TARGET_POLL_S) if until_s is not None else None,
        is_for_handover=until_s is not None,
    )


def _lost(
    previous: World | None, nodes: Sequence[WorldNode], change: WorldChange
) -> tuple[NodeId, ...]:
    """Return the nodes of the world before that are not in the next one, or in another life.

    Where the training begins anew, what was lost before is why.
    """
    here = {(node.node, node.incarnation) for node in nodes}
    before = previous.nodes if previous is not None else ()
    lost = (node.node for node in before if (node.node, node.incarnation) not in here)
    first = previous.lost if previous is not None and change.begins_anew else ()
    return tuple(dict.fromkeys((*first, *lost)))


def _choose(
    state: JobState, change: WorldChange, ready: Sequence[SeenMember], target: int
) -> list[SeenMember]:
    """Choose survivors first, in the order of their ranks, then newcomers by age."""
    previous = state.world

    # What a process has that is to be replaced counts for nothing.
    rich = {s.member.node for s in ready if offers_state(state, change, s.member)}

    def preference(seen: SeenMember) -> tuple[bool, int, bool, int, str]:
        node = previous.node(seen.member.node) if previous is not None else None
        is_poor = seen.member.node not in rich
        if node is not None:
            return (is_poor and not is_held, 0, False, node.first_rank, seen.member.node)
        return (is_poor and not is_held, 1, is_poor, seen.create_revision, seen.member.node)

    # Where none of the nodes that would stay has the job's state, a standby node that has an older
    # state is taken, or another node that could stay where fewer are wanted.
    staying = sorted(
        (node.first_rank, s.member.node, node.incarnation == s.member.incarnation)
        for s in ready
        if previous is not None and (node := previous.node(s.member.node)) is not None
    )[:target]
    is_held = any(is_same and name in rich for _, name, is_same in staying)

    return sorted(ready, key=preference)[:target]


def _at_step(state: JobState, change: WorldChange, now_s: float) -> int | Wait | None:
    """Return the step after which the ranks leave the standing world, if they can leave in order.

    The step is far enough ahead that all ranks learn of it in time. A rank that learns of it later
    names a later step, and all ranks go on to that step.
    """
    world = state.world
    if not state.is_in_process or not change.is_orderly or world is None or state.is_world_ended:
        return None
    if state.formed_s is None and change.reason is not Reason.JOINED:
        if world.at_step is None:
            return None
        # Nothing is broken: those who are new have the state when it has made a step.
        return Wait(message="the standing world to form", until_s=now_s + FIRST_STEP_POLL_S)
    pace = state.pace
    if pace is None or pace.generation != world.generation:
        # So every world commits something, however fast others want to come and go.
        return Wait(
            message="the first step of the standing world", until_s=now_s + FIRST_STEP_POLL_S
        )
    if pace.step_s <= 0.0:
        return pace.step + 1
    # The pace is an estimate: steps may have come a little faster since it was told.
    since_s = 1.1 * min(now_s - pace.at_s, PACE_LIMIT_S)
    return pace.step + 1 + int((since_s + AHEAD_S) / pace.step_s)


def _world_nodes(
    state: JobState, change: WorldChange, chosen: Sequence[SeenMember], generation: Generation
) -> list[WorldNode]:
    by_node = {seen.member.node: seen.member for seen in chosen}
    world = state.world
    survivors = {n for n, m in by_node.items() if world is not None and world.has(n, m.incarnation)}
    order = order_nodes(world, list(by_node), survivors)
    return [_world_node(state, change, by_node[node], generation) for node in order]


def _world_node(
    state: JobState, change: WorldChange, member: Member, generation: Generation
) -> WorldNode:
    """Take the slots that the member offers."""
    previous = state.world.node(member.node) if state.world is not None else None
    is_survivor = previous is not None and previous.incarnation == member.incarnation
    used: dict[Slot, int] = {}
    if previous is not None and is_survivor:
        used = {worker.slot: worker.nonce for worker in previous.workers}
    # In restart mode a slot can start any number of processes: a new world always means a new one,
    # so the survivors need not write a new offer before they can be counted in: it is numbered by
    # the generation, and beyond the one that it follows, whose number is higher where several died
    # in one generation. In in-process mode it is the process that waits.
    workers = tuple(
        WorldWorker(slot=offer.slot, nonce=offer.nonce)
        if offer.is_prepared
        else WorldWorker(
            slot=offer.slot,
            nonce=Nonce(max(offer.nonce, generation, used.get(offer.slot, 0) + 1)),
        )
        for offer in offers_in(state, change, member)
    )
    return WorldNode(
        node=member.node,
        incarnation=member.incarnation,
        host=member.host,
        address=member.address,
        port=member.port,
        first_rank=Rank(0),
        workers=workers,
        since=previous.since if previous is not None and is_survivor else generation,
        new_slots=new_slots(state, previous, workers) if previous and is_survivor else (),
    )


def _fresh_store(
    state: JobState, node: NodeId, spent: Sequence[StoreAddress]
) -> StoreAddress | None:
    seen = state.members.get(node)
    assert seen is not None
    return next((store for store in seen.member.stores if store not in spent), None)


def _spent_stores(state: JobState) -> tuple[StoreAddress, ...]:
    """Return the stores of earlier worlds that an outdated record still lists as fresh."""
    past: dict[StoreAddress, None] = {}
    for world in (state.past.world, state.world):
        if world is not None:
            past |= dict.fromkeys((*world.spent_stores, world.store))
    if not past:
        return ()
    hosts = {store.host for store in past}
    listed = {
        store
        for seen in state.members.values()
        if any(store.host in hosts for store in seen.member.stores)
        for store in seen.member.stores
    }
    return tuple(store for store in past if store in listed)


def _held_until_s(state: JobState, change: WorldChange, seen: SeenMember) -> float:
    world = state.world
    if change.lost.get(seen.member.node) is Reason.CUT_OFF:
        return state.ended_s + CUT_RETRY_S
    if world is None or world.has(seen.member.node, seen.member.incarnation):
        return 0.0
    exclusion = world.exclusion(seen.member.node)
    if exclusion is None:
        return 0.0
    delay_s = readmission_delay_s(exclusion.losses, is_in_process=state.is_in_process)
    return seen.seen_s + delay_s


def _late(state: JobState, change: WorldChange) -> Set[NodeId]:
    """Return the nodes that the change leaves out although their leases and records are well.

    If a job has to wait because nodes do not reach each other, it tries again with all of them.
    """
    absent = {Reason.DID_NOT_ARRIVE}
    if not state.is_world_ended:
        absent.add(Reason.CUT_OFF)
    return {node for node, reason in change.lost.items() if reason in absent}

"""What the next world looks like: a pure function of the facts, which always says why."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from elasticd.records.ids import Generation, NodeId, Nonce, Rank
from elasticd.records.job import target_nodes
from elasticd.records.member import Member, StoreAddress
from elasticd.records.reason import Reason
from elasticd.records.world import Exclusion, World, WorldNode, WorldWorker
from elasticd.rendezvous.change import Change, has_ended, is_candidate
from elasticd.rendezvous.explain import names
from elasticd.rendezvous.ranks import order_nodes, with_ranks
from elasticd.rendezvous.state import JobState, SeenMember

__all__ = ["ISOLATION_MARGIN_S", "READMISSION_BASE_S", "Wait", "plan_world", "readmission_delay_s"]

ISOLATION_MARGIN_S = 5.0
"""Two clocks run apart by less than this over an isolation limit, with room for a late kill."""

STORE_POLL_S = 0.05
"""Between looks while only a fresh store is missing, which is on its way."""

READMISSION_BASE_S = 1.0
_READMISSION_MOST_S = 60.0
_STEADY_S = 60.0
"""A world that stood this long clears the record of the nodes in it."""
_EXCLUSIONS_KEPT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """No world can be planned now."""

    message: str
    """For whom or what, as the rest of a sentence that begins with "waiting for"."""
    until_s: float | None = None
    """Look again then; None: only a new fact can change it."""
    is_below_min: bool = False


def plan_world(state: JobState, change: Change, *, now_s: float) -> World | Wait:
    """Return the world that should follow the standing one, or why there can be none yet."""
    spec, previous = state.spec, state.world
    target = target_nodes(spec, state.wants)
    candidates = [s for s in state.members.values() if is_candidate(state, s)]
    late = _late(change)
    candidates = [s for s in candidates if s.member.node not in late]
    held = [(_held_until_s(state, s), s) for s in candidates]
    ready = [s for until_s, s in held if until_s <= now_s]
    chosen = _choose(previous, ready, target)
    if len(chosen) < spec.min_nodes:
        return _wait_for_members(state, chosen, held, now_s)
    if change.reason is Reason.JOINED and not state.is_world_ended:
        early = _too_early_to_join(state, chosen, held, now_s)
        if early is not None:
            return early
    blocked = _unproved_end(state, chosen, now_s)
    if blocked is not None:
        return blocked
    generation = Generation(previous.generation + 1 if previous is not None else 1)
    nodes = with_ranks(_world_nodes(state, chosen, generation))
    spent = _spent_stores(state)
    store = _fresh_store(state, nodes[0].node, spent)
    if store is None:
        return Wait(message=f"a fresh store on node {nodes[0].node}", until_s=now_s + STORE_POLL_S)
    is_first = previous is None
    here = {(node.node, node.incarnation) for node in nodes}
    return World(
        generation=generation,
        nodes=nodes,
        store=store,
        reason=Reason.FIRST_WORLD if is_first else change.reason,
        culprit=change.culprit,
        lost=tuple(
            node.node
            for node in (previous.nodes if previous is not None else ())
            if (node.node, node.incarnation) not in here
        ),
        excluded=_exclusions(state, change, nodes, generation, now_s),
        proposer=state.me.node,
        token=f"{state.me.incarnation}/{generation}/{state.world_revision}/{state.lost_races}",
        planned_revision=state.members_revision,
        unended=_unended(state, chosen, generation),
        spent_stores=spent,
        restarts=0 if is_first or previous is None else previous.restarts + 1,
    )


def readmission_delay_s(losses: int) -> float:
    """How long a node that was lost this often in a row waits before it is taken in again."""
    if losses < 2:
        return 0.0
    return min(_READMISSION_MOST_S, READMISSION_BASE_S * 2.0 ** min(losses - 2, 16))


def _choose(previous: World | None, ready: Sequence[SeenMember], target: int) -> list[SeenMember]:
    """Survivors first, in the order of their ranks, then newcomers by age."""

    def preference(seen: SeenMember) -> tuple[int, int, str]:
        node = previous.node(seen.member.node) if previous is not None else None
        if node is not None:
            return (0, node.first_rank, seen.member.node)
        return (1, seen.create_revision, seen.member.node)

    return sorted(ready, key=preference)[:target]


def _world_nodes(
    state: JobState, chosen: Sequence[SeenMember], generation: Generation
) -> list[WorldNode]:
    by_node = {seen.member.node: seen.member for seen in chosen}
    world = state.world
    survivors = {n for n, m in by_node.items() if world is not None and world.has(n, m.incarnation)}
    order = order_nodes(world, list(by_node), survivors)
    return [_world_node(state, by_node[node], generation) for node in order]


def _world_node(state: JobState, member: Member, generation: Generation) -> WorldNode:
    """Take the slots that the member offers, at most as many as the job wants per node."""
    spec = state.spec
    offers = member.slots[: spec.workers_per_node] if spec.workers_per_node else member.slots
    previous = state.world.node(member.node) if state.world is not None else None
    is_survivor = previous is not None and previous.incarnation == member.incarnation
    return WorldNode(
        node=member.node,
        incarnation=member.incarnation,
        host=member.host,
        address=member.address,
        port=member.port,
        first_rank=Rank(0),
        # In restart mode a slot can start any number of processes: a new world always means a new
        # one, so the survivors need not write a new offer before they can be counted in. No
        # process was ever numbered beyond its generation: so this number is a new one.
        workers=tuple(
            WorldWorker(slot=offer.slot, nonce=Nonce(max(offer.nonce, generation)))
            for offer in offers
        ),
        since=previous.since if previous is not None and is_survivor else generation,
    )


def _fresh_store(
    state: JobState, node: NodeId, spent: Sequence[StoreAddress]
) -> StoreAddress | None:
    seen = state.members.get(node)
    assert seen is not None
    return next((store for store in seen.member.stores if store not in spent), None)


def _spent_stores(state: JobState) -> tuple[StoreAddress, ...]:
    """Stores that were some world's, as long as a record that is slow to say so lists them."""
    if state.world is None:
        return ()
    past = dict.fromkeys((*state.world.spent_stores, state.world.store))
    hosts = {store.host for store in past}
    listed = {
        store
        for seen in state.members.values()
        if any(store.host in hosts for store in seen.member.stores)
        for store in seen.member.stores
    }
    return tuple(store for store in past if store in listed)


def _held_until_s(state: JobState, seen: SeenMember) -> float:
    world = state.world
    if world is None or world.has(seen.member.node, seen.member.incarnation):
        return 0.0
    exclusion = world.exclusion(seen.member.node)
    if exclusion is None:
        return 0.0
    return seen.seen_s + readmission_delay_s(exclusion.losses)


def _wait_for_members(
    state: JobState,
    chosen: Sequence[SeenMember],
    held: Sequence[tuple[float, SeenMember]],
    now_s: float,
) -> Wait:
    here = len(chosen)
    missing = state.spec.min_nodes - here
    plural = "" if missing == 1 else "s"
    message = f"{missing} more node{plural}: {here} of at least {state.spec.min_nodes} ready"
    preparing = [
        s.member.node
        for s in state.members.values()
        if not s.member.slots and s.member.leaving is None
    ]
    if preparing:
        message += f"; preparing: {names(preparing)}"
    waiting = [(until_s, s.member.node) for until_s, s in held if until_s > now_s]
    if waiting:
        message += f"; held back after repeated losses: {names([n for _, n in waiting])}"
    return Wait(
        message=message,
        until_s=min((until_s for until_s, _ in waiting), default=None),
        is_below_min=True,
    )


def _unproved_end(state: JobState, chosen: Sequence[SeenMember], now_s: float) -> Wait | None:
    """Rule 4: two worlds without a common node could both run, unless the first surely ended."""
    world = state.world
    if world is None or _shares_unended(state, world, chosen):
        return None
    limit_s = state.spec.isolation_limit_s + ISOLATION_MARGIN_S
    alive, gone = [], []
    for node in world.nodes:
        if has_ended(state, world, node):
            continue
        if state.members.get(node.node) is not None:
            alive.append(node.node)  # Stops as soon as the status says that its world is over.
        elif (until_s := state.gone_s.get(node.node, now_s) + limit_s) > now_s:
            gone.append((until_s, node.node))
    if not alive and not gone:
        return None
    message = f"node {names(alive)} to stop its workers" if alive else ""
    if gone:
        message += "; and for " if message else ""
        message += (
            f"the end of {names([name for _, name in gone])}, which vanished without a goodbye "
            f"and may still train for up to {limit_s:.0f} s"
        )
    last_s = max((until_s for until_s, _ in gone), default=None)
    return Wait(message=message, until_s=None if alive else last_s, is_below_min=True)


def _shares_unended(state: JobState, world: World, chosen: Sequence[SeenMember]) -> bool:
    """One of the chosen was already in the oldest world that may still run: it ends that one.

    Not just in the standing world: if that never formed, its survivors may not have stopped the
    workers of the world before, and a newcomer to it proves nothing.
    """
    oldest = _oldest_unended(state, world)
    return any(
        node is not None and node.incarnation == seen.member.incarnation and node.since <= oldest
        for seen in chosen
        if (node := world.node(seen.member.node)) is not None
    )


def _oldest_unended(state: JobState, world: World) -> Generation:
    return world.generation if state.formed_s is not None else world.unended


def _unended(state: JobState, chosen: Sequence[SeenMember], generation: Generation) -> Generation:
    """What the next world says of those before it."""
    world = state.world
    if world is None or not _shares_unended(state, world, chosen):
        return generation  # All of them were proved over.
    return _oldest_unended(state, world)


def _late(change: Change) -> Set[NodeId]:
    return {node for node, reason in change.lost.items() if reason is Reason.DID_NOT_ARRIVE}


def _too_early_to_join(
    state: JobState,
    chosen: Sequence[SeenMember],
    held: Sequence[tuple[float, SeenMember]],
    now_s: float,
) -> Wait | None:
    """A join does not disturb a formation, and is none while all newcomers are held back."""
    world = state.world
    if world is None:
        return None
    if state.formed_s is None:
        return Wait(message="the standing world to form")
    if all(world.has(s.member.node, s.member.incarnation) for s in chosen):
        times = [until_s for until_s, _ in held if until_s > now_s]
        return Wait(message="a newcomer held back", until_s=min(times, default=None))
    return None


def _exclusions(
    state: JobState,
    change: Change,
    nodes: Sequence[WorldNode],
    generation: Generation,
    now_s: float,
) -> tuple[Exclusion, ...]:
    """Carry on who was left out and how often; forget it for who stood through a steady world."""
    previous = state.world
    if previous is None:
        return ()
    kept = {e.node: e for e in previous.excluded}
    if state.formed_s is not None and now_s - state.formed_s >= _STEADY_S:
        for node in previous.nodes:
            kept.pop(node.node, None)
    inside = {(n.node, n.incarnation) for n in nodes}
    for node in previous.nodes:
        if (node.node, node.incarnation) in inside or node.node not in change.lost:
            continue
        before, reason = kept.get(node.node), change.lost[node.node]
        is_counted = not reason.is_planned and reason is not Reason.NODE_LEFT
        kept[node.node] = Exclusion(
            node=node.node,
            incarnation=node.incarnation,
            reason=reason,
            generation=generation,
            losses=(before.losses if before is not None else 0) + int(is_counted),
        )
    newest = sorted(kept.values(), key=lambda e: (e.generation, e.node))[-_EXCLUSIONS_KEPT:]
    return tuple(newest)

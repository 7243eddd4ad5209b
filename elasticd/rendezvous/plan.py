"""What the next world looks like: a pure function of the facts, which always says why."""

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.records.ids import Generation, NodeId, Nonce, Rank
from elasticd.records.job import target_nodes
from elasticd.records.member import Member, StoreAddress
from elasticd.records.reason import Reason
from elasticd.records.world import Exclusion, World, WorldNode, WorldWorker
from elasticd.rendezvous.change import Change, change_of_node, is_candidate
from elasticd.rendezvous.ranks import order_nodes, with_ranks
from elasticd.rendezvous.state import JobState, SeenMember

__all__ = ["ISOLATION_MARGIN_S", "READMISSION_BASE_S", "Wait", "plan_world", "readmission_delay_s"]

ISOLATION_MARGIN_S = 5.0
"""Two clocks run apart by less than this over an isolation limit, with room for a late kill."""

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
    if change.reason is Reason.DID_NOT_ARRIVE:
        candidates = [s for s in candidates if s.member.node not in change.lost]
    held = [(_held_until_s(state, s), s) for s in candidates]
    ready = [s for until_s, s in held if until_s <= now_s]
    chosen = _choose(previous, ready, target)
    if len(chosen) < spec.min_nodes:
        return _wait_for_members(state, chosen, held, now_s)
    blocked = _unproved_end(state, chosen, now_s)
    if blocked is not None:
        return blocked
    nodes = with_ranks(_world_nodes(state, chosen))
    store = _fresh_store(state, nodes[0].node)
    if store is None:
        return Wait(message=f"a fresh store on node {nodes[0].node}")
    generation = Generation(previous.generation + 1 if previous is not None else 1)
    is_first = previous is None
    return World(
        generation=generation,
        nodes=nodes,
        store=store,
        reason=Reason.FIRST_WORLD if is_first else change.reason,
        culprit=change.culprit,
        lost=change.lost,
        excluded=_exclusions(state, change, nodes, generation, now_s),
        proposer=state.me.node,
        token=f"{state.me.incarnation}/{generation}/{state.world_revision}/{state.lost_races}",
        planned_revision=state.members_revision,
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


def _world_nodes(state: JobState, chosen: Sequence[SeenMember]) -> list[WorldNode]:
    by_node = {seen.member.node: seen.member for seen in chosen}
    world = state.world
    survivors = {n for n, m in by_node.items() if world is not None and world.has(n, m.incarnation)}
    order = order_nodes(world, list(by_node), survivors)
    return [_world_node(state, by_node[node]) for node in order]


def _world_node(state: JobState, member: Member) -> WorldNode:
    """Take the slots that the member offers, at most as many as the job wants per node."""
    spec = state.spec
    offers = member.slots[: spec.workers_per_node] if spec.workers_per_node else member.slots
    previous = state.world.node(member.node) if state.world is not None else None
    used = {}
    if previous is not None and previous.incarnation == member.incarnation:
        used = {worker.slot: worker.nonce for worker in previous.workers}
    return WorldNode(
        node=member.node,
        incarnation=member.incarnation,
        host=member.host,
        address=member.address,
        port=member.port,
        first_rank=Rank(0),
        # In restart mode a slot can start any number of processes: a new world always means a new
        # one, so the survivors need not write a new offer before they can be counted in.
        workers=tuple(
            WorldWorker(slot=offer.slot, nonce=Nonce(max(offer.nonce, used.get(offer.slot, 0) + 1)))
            for offer in offers
        ),
    )


def _fresh_store(state: JobState, node: NodeId) -> StoreAddress | None:
    """The node's next store; the world's own may still be listed if its agent was slow to say."""
    seen = state.members.get(node)
    used = state.world.store if state.world is not None else None
    assert seen is not None
    return next((store for store in seen.member.stores if store != used), None)


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
        message += f"; preparing: {_names(preparing)}"
    waiting = [(until_s, s.member.node) for until_s, s in held if until_s > now_s]
    if waiting:
        message += f"; held back after repeated losses: {_names([n for _, n in waiting])}"
    absent = _absent(state)
    if absent:
        message += f"; gone: {_names(absent)}"
    return Wait(
        message=message,
        until_s=min((until_s for until_s, _ in waiting), default=None),
        is_below_min=True,
    )


def _absent(state: JobState) -> list[NodeId]:
    if state.world is None:
        return []
    return [
        node.node
        for node in state.world.nodes
        if (seen := state.members.get(node.node)) is None or not is_candidate(state, seen)
    ]


def _names(nodes: Sequence[NodeId]) -> str:
    shown = ", ".join(nodes[:5])
    return f"{shown} and {len(nodes) - 5} more" if len(nodes) > 5 else shown


def _unproved_end(state: JobState, chosen: Sequence[SeenMember], now_s: float) -> Wait | None:
    """Rule 4: two worlds without a common node could both run, unless the first surely ended."""
    world = state.world
    if world is None or any(world.has(s.member.node, s.member.incarnation) for s in chosen):
        return None
    limit_s = state.spec.isolation_limit_s + ISOLATION_MARGIN_S
    waits = []
    for node in world.nodes:
        reason, _ = change_of_node(state, world, node, is_late=False)
        if reason is not Reason.NODE_LOST:
            continue  # finished, said goodbye, was probed dead, or came back as a new incarnation
        waits.append((state.gone_s.get(node.node, now_s) + limit_s, node.node))
    waits = [(until_s, node) for until_s, node in waits if until_s > now_s]
    if not waits:
        return None
    until_s, last = max(waits)
    return Wait(
        message=f"the end of node {last}, which vanished without a goodbye and may still train "
        f"for {until_s - now_s:.0f} s",
        until_s=until_s,
        is_below_min=True,
    )


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
        before = kept.get(node.node)
        reason, _ = change_of_node(
            state, previous, node, is_late=change.reason is Reason.DID_NOT_ARRIVE
        )
        if reason is None:
            continue
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

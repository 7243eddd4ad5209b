"""The rules that no decision may break, checked after each one: in the simulator and live.

1. Generations grow, and in one world no worker stands twice.
2. A worker that enters a world is one that its node's newest record offers.
3. Survivors keep their order, and rank 0 is one of them.
4. Worlds without a common node do not both run (`next_world/wait.py` asks for the proof).
5. A node without its lease writes nothing.
6. What is over stays over: an older generation, a final status, an excluded incarnation, a used
   store.

The check is cheap: a decision that proposes nothing and starts nothing is checked in constant time.
A broken rule is a bug of elasticd; the agent stops rather than act on the decision.
"""

from elasticd.errors import InvariantBroken
from elasticd.records.ids import NodeId, Nonce, Slot
from elasticd.records.world import World, WorldNode
from elasticd.rendezvous import effect as fx
from elasticd.rendezvous.state import JobState

__all__ = ["check"]

_WRITES = (
    fx.WriteMember,
    fx.ProposeWorld,
    fx.WriteStatus,
    fx.WriteResult,
    fx.WriteIncident,
    fx.Withdraw,
)


def check(
    before: JobState, learned: JobState, after: JobState, effects: tuple[fx.Effect, ...]
) -> None:
    """Compare the decision with the rules of the rendezvous.

    `learned` is the state with the event in it, before the decision.

    Raises:
        InvariantBroken: with the number of the rule and what was about to happen.
    """
    _generations_grow(before, after)
    for effect in effects:
        if isinstance(effect, _WRITES):
            _rule(not after.is_fenced, 5, "writes without a lease", effect)
        match effect:
            case fx.StartWorker(placement=placement, world=world):
                _started_once(learned, placement.worker.slot, placement.worker.nonce, effect)
                _rule(world.generation > learned.adopted, 6, "starts an old generation", effect)
            case fx.PrepareWorker(slot=slot, nonce=nonce):
                _started_once(learned, slot, nonce, effect)
            case fx.EnterWorld():
                _entered_in_order(learned, effect)
            case fx.ProposeWorld():
                _rule(not before.is_over, 6, "proposes a world for a job that is over", effect)
                _world_fits(after, effect)
            case fx.WriteStatus():
                _rule(not before.is_over, 6, "rewrites a final status", effect)
            case _:
                pass


def _generations_grow(before: JobState, after: JobState) -> None:
    old, new = before.world, after.world
    if old is not None and new is not old:
        _rule(new is not None and new.generation >= old.generation, 1, "goes back", new)
        if new is not None and new.generation == old.generation:
            _rule(new.token == old.token, 1, "sees two worlds in one generation", (old, new))
    _rule(after.adopted >= before.adopted, 1, "adopts an older generation", after.adopted)


def _started_once(before: JobState, slot: Slot, nonce: Nonce, effect: fx.Effect) -> None:
    _rule(slot not in before.workers, 1, "starts a worker where one still lives", effect)
    _rule(nonce > before.nonces.get(slot, 0), 1, "starts a worker number twice", effect)


def _entered_in_order(before: JobState, effect: fx.EnterWorld) -> None:
    worker, generation = before.workers.get(effect.slot), effect.world.generation
    is_it = worker is not None and worker.nonce == effect.nonce == effect.placement.worker.nonce
    _rule(is_it, 1, "lets another process enter than the world names", effect)
    assert worker is not None
    _rule(worker.is_attached, 2, "lets a worker enter that is not prepared", effect)
    _rule(generation > worker.ordered, 6, "sends a worker back to an old generation", effect)


def _world_fits(state: JobState, effect: fx.ProposeWorld) -> None:
    world, spec, previous = effect.world, state.spec, state.world
    _rule(world.generation == state.next_generation, 1, "skips or repeats a generation", effect)
    count = len(world.nodes)
    # Those who only hand over the state before they go are not counted.
    stays = sum(not _is_leaving(state, node) for node in world.nodes)
    is_fit = spec.min_nodes <= count and stays <= spec.max_nodes
    _rule(is_fit, 2, "is of a wrong size", effect)
    _rule(len({node.node for node in world.nodes}) == count, 2, "names a node twice", effect)
    next_rank = 0
    for node in world.nodes:
        seen = state.members.get(node.node)
        _rule(seen is not None, 2, f"names {node.node}, which is no member", effect)
        assert seen is not None
        _rule(seen.member.incarnation == node.incarnation, 2, "names an old incarnation", effect)
        # Our own record is in etcd already, or goes there with the world.
        is_own = node.node == state.me.node and state.member_sent is not None
        member = state.member_sent if is_own and state.member_sent else seen.member
        offered = {offer.slot: offer.nonce for offer in member.slots}
        _rule(bool(node.workers), 2, f"gives {node.node} no worker", effect)
        prepared = {(offer.slot, offer.nonce) for offer in member.slots if offer.is_prepared}
        for worker in node.workers:
            is_offered = worker.slot in offered and worker.nonce >= offered[worker.slot]
            if state.is_in_process:
                is_offered = (worker.slot, worker.nonce) in prepared
            _rule(is_offered, 2, f"takes a slot of {node.node} that is not ready", effect)
        _rule(node.first_rank == next_rank, 3, "has ranks that are not contiguous", effect)
        next_rank += len(node.workers)
        if previous is not None:
            is_out = previous.is_excluded(node.node, node.incarnation)
            _rule(not is_out, 6, f"takes back {node.node}, which was shut out", effect)
    if previous is not None:
        _succession_fits(state, previous, world, effect)


def _is_leaving(state: JobState, node: WorldNode) -> bool:
    seen = state.members.get(node.node)
    is_old = state.world is not None and state.world.has(node.node, node.incarnation)
    # Our own record is in etcd already, or goes there with the world.
    member = seen.member if seen is not None else None
    is_asked = state.leaving if node.node == state.me.node else member and member.leaving
    return is_old and is_asked is not None


def _succession_fits(state: JobState, previous: World, world: World, effect: object) -> None:
    """Check rule 1 (no worker twice) and rule 3 (survivors keep their order, rank 0 is one of
    them).
    """
    survivors: list[NodeId] = []
    for node in world.nodes:
        old = previous.node(node.node)
        if old is None or old.incarnation != node.incarnation:
            continue
        survivors.append(node.node)
        used = {worker.slot: worker.nonce for worker in old.workers}
        for worker in node.workers:
            # In in-process mode a process goes on from world to world, but never comes back.
            least = used.get(worker.slot, 0) + (not state.is_in_process)
            _rule(worker.nonce >= least, 1, "reuses a worker", effect)
    if survivors:
        first = world.nodes[0]
        is_kept = previous.has(first.node, first.incarnation)
        _rule(is_kept, 3, "gives rank 0 to a newcomer", effect)
    order = {node.node: index for index, node in enumerate(previous.nodes)}
    places = [order[name] for name in survivors]
    _rule(places == sorted(places), 3, "changes the order of the survivors", effect)
    _rule(world.store != previous.store, 6, "uses a store twice", effect)


def _rule(holds: bool, number: int, what: str, evidence: object) -> None:
    if not holds:
        raise InvariantBroken(f"Rendezvous rule {number}: the decision {what}: {evidence!r}")

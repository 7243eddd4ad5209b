"""Leads workers that called `elasticd.run` from world to world, and prepares others.

This is the in-process half of a member's conduct: a worker is ordered to enter a world or to leave
one, and reports when it did. How it gets there in its own process is a matter of `elasticd.train`.
It is level-triggered, like the rest of the conduct.
"""

import dataclasses

from elasticd.records.ids import Generation, Rank
from elasticd.records.member import Exit
from elasticd.records.reason import Reason
from elasticd.records.world import WorldNode
from elasticd.rendezvous.effect import (
    Effect,
    EnterWorld,
    LeaveWorld,
    PrepareWorker,
    UseStore,
)
from elasticd.rendezvous.next_world.handover import keeps_state
from elasticd.rendezvous.own_record import (
    desired_generation,
    is_current,
    is_shut_out,
    my_node,
    next_nonce,
)
from elasticd.rendezvous.state import (
    JobState,
    Stage,
    Worker,
    WorkerStage,
    due_in_s,
    replace,
)

__all__ = [
    "are_idle",
    "enter",
    "is_hung_one",
    "is_kept",
    "is_membership_over",
    "leave",
    "living_workers",
    "prepare",
]

Step = tuple[JobState, tuple[Effect, ...]]

NO_GENERATION = Generation(0)
NO_RANK = Rank(0)
"""The rank of a worker that is in no world; nobody reads it."""


def is_kept(state: JobState, worker: Worker, now_s: float) -> bool:
    """Return whether this process may live on, whatever the worlds do: the in-process rule of
    `stop`.
    """
    if worker.stage is WorkerStage.FAILED or is_hung_one(state, worker):
        return False
    if state.is_over:
        return False
    if is_membership_over(state):
        # It leaves its world, and waits with its state for our next incarnation.
        return worker.is_attached and (worker.leave_by_s is None or now_s < worker.leave_by_s)
    if state.stage not in (Stage.MEMBER, Stage.LEAVING):
        return False
    mine = my_node(state)
    if mine is not None and any(
        named.slot == worker.slot and named.nonce > worker.nonce for named in mine.workers
    ):
        # Agreed on by somebody who did not know yet that processes go on: a later one is awaited.
        return False
    is_inside = worker.generation != 0 or worker.entered != 0
    if worker.slot not in state.slots and not is_inside:
        return False
    if state.stage is Stage.LEAVING and worker.generation == 0:
        if worker.entered != 0:  # On its way out of its last world.
            return worker.leave_by_s is None or now_s < worker.leave_by_s
        return keeps_state(state, now_s) or _is_called(state, worker, mine)
    return True


def _is_called(state: JobState, worker: Worker, mine: WorldNode | None) -> bool:
    """Return whether the standing world names a worker that does not know yet."""
    wanted = desired_generation(state)
    if mine is None or wanted is None or worker.ordered >= wanted:
        return False
    return (worker.slot, worker.nonce) in {(named.slot, named.nonce) for named in mine.workers}


def is_membership_over(state: JobState) -> bool:
    """Return whether this incarnation can enter no world any more, and did not ask to leave."""
    is_out = is_shut_out(state) and state.leaving is None
    return state.stage is Stage.VOID or state.is_replaced or is_out


def are_idle(state: JobState) -> bool:
    """Return whether all workers here are attached and in no world."""
    return all(
        worker.is_attached
        and not worker.stop_sent
        and worker.generation == 0
        and worker.entered == 0
        for worker in state.workers.values()
    )


def is_hung_one(state: JobState, worker: Worker) -> bool:
    """Return whether this very process was found to hang, by us or by the world that was made
    without it.
    """
    records = [state.failure, state.world.culprit if state.world is not None else None]
    if state.is_world_ended and state.status is not None:
        records.append(state.status.failure)
    return any(
        culprit is not None
        and culprit.is_hung
        and (culprit.node, culprit.incarnation) == (state.me.node, state.me.incarnation)
        and (culprit.slot, culprit.nonce) == (worker.slot, worker.nonce)
        for culprit in records
    )


def enter(state: JobState, now_s: float) -> Step:
    """Send each attached worker the world that names it."""
    world, mine, wanted = state.world, my_node(state), desired_generation(state)
    if world is None or mine is None or wanted is None or state.is_fenced:
        return state, ()
    ordered = {}
    effects: list[Effect] = []
    exits = []
    for placement in world.placements_of(mine):
        worker = state.workers.get(placement.worker.slot)
        if worker is None and state.done.get(placement.worker.slot) == placement.worker.nonce:
            # It had finished when the world was agreed on: so it has finished in that one.
            exits.append(Exit(rank=placement.rank, code=0))
        if worker is None or worker.nonce != placement.worker.nonce:
            continue
        if not worker.is_attached or worker.ordered >= wanted or worker.stop_sent:
            continue
        ordered[worker.slot] = dataclasses.replace(
            worker, generation=wanted, rank=placement.rank, ordered=wanted, leave_by_s=None
        )
        if worker.is_finished:
            continue
        effects.append(
            EnterWorld(slot=worker.slot, nonce=worker.nonce, world=world, placement=placement)
        )
    is_new = state.adopted < wanted
    if not ordered and not (exits and is_new):
        return state, ()
    if is_new:
        done = {s: n for s, n in state.done.items() if exits}
        # How a process ended that this world still names is news to those who agreed on it.
        known, named = state.failure, {(worker.slot, worker.nonce) for worker in mine.workers}
        failure = known if known and (known.slot, known.nonce) in named else None
        state = replace(state, adopted=wanted, exits=tuple(exits), done=done, failure=failure)
        if mine.first_rank == 0:
            if world.store not in state.stores:
                # No longer fresh: this world cannot form, and the next one takes another store.
                return replace(state, broken=wanted, cut_off=(), adopted_arrival=wanted), ()
            effects.insert(0, UseStore(store=world.store))
            state = replace(state, stores=tuple(s for s in state.stores if s != world.store))
    return replace(state, workers={**state.workers, **ordered}), tuple(effects)


def leave(state: JobState, now_s: float) -> Step:
    """Order attached workers that no world names to wait for one, with their state."""
    mine, wanted = my_node(state), desired_generation(state)
    named = (
        {(w.slot, w.nonce) for w in mine.workers}
        if mine is not None and wanted is not None
        else set()
    )
    world = state.world
    effects, changed = [], {}
    for slot, worker in state.workers.items():
        is_out = worker.generation == 0 or not worker.is_attached or worker.stop_sent
        if is_out or (slot, worker.nonce) in named or world is None:
            continue
        is_new = worker.ordered < world.generation and not state.is_world_ended
        is_last = state.stage is Stage.LEAVING or is_membership_over(state)
        at_step = world.at_step if is_new and state.stage is not Stage.VOID else None
        by_s = now_s + state.spec.shutdown_timeout_s if is_last else None
        if by_s is not None and at_step is not None and state.leaving is Reason.DRAINED:
            # Whoever drains a node has the time that a step takes; a machine that goes has not.
            by_s += due_in_s(state.pace, world)
        # It may have entered already where it was ordered to, and its word of that be on its way.
        entered = max(worker.entered, worker.ordered)
        changed[slot] = dataclasses.replace(
            worker, generation=NO_GENERATION, entered=entered, leave_by_s=by_s, stall=None
        )
        effects.append(LeaveWorld(slot=slot, nonce=worker.nonce, at_step=at_step))
    if not changed:
        return state, ()
    return replace(state, workers={**state.workers, **changed}), tuple(effects)


def prepare(state: JobState, now_s: float) -> Step:
    """Start processes for the slots that have none, once the survivors train again."""
    if not state.is_in_process or state.is_over or state.is_fenced or not state.is_pool_ready:
        return state, ()
    if state.stage is not Stage.MEMBER or is_shut_out(state):
        return state, ()
    if _is_ending(state):
        return state, ()  # Nobody else is needed.
    mine = my_node(state)
    if mine is not None and not _is_under_way(state, mine):
        return state, ()
    free = [slot for slot in state.slots if slot not in state.workers]
    failures = state.slot_failures
    held = {slot for slot, f in failures.items() if f.retry_at_s and now_s < f.retry_at_s}
    held |= {slot for slot, f in failures.items() if f.is_left_out}
    free = [slot for slot in free if slot not in held]
    if not free:
        return state, ()
    workers, nonces, effects = dict(state.workers), dict(state.nonces), []
    for slot in free:
        nonce = next_nonce(state, slot)
        nonces[slot] = nonce
        workers[slot] = Worker(slot=slot, nonce=nonce, generation=NO_GENERATION, rank=NO_RANK)
        effects.append(PrepareWorker(slot=slot, nonce=nonce))
    state = replace(state, workers=workers, nonces=nonces)
    return state, tuple(effects)


def _is_ending(state: JobState) -> bool:
    """Return whether a rank of the standing world finished, here or elsewhere."""
    if state.is_world_ended:
        return False  # It came to nothing.
    if any(worker.is_finished and worker.generation for worker in state.workers.values()):
        return True
    return state.ok_ranks > 0 or (is_current(state) and bool(state.done))


def _is_under_way(state: JobState, mine: WorldNode) -> bool:
    """Return whether all of this node's living workers have stepped in the world; True for none."""
    world = state.world
    assert world is not None
    if desired_generation(state) is None:
        return True
    if state.adopted < world.generation:
        # It is yet to be entered, unless nobody of those whom it names is left here.
        return not any(living_workers(state, mine))
    return all(worker.stepped == world.generation for worker in living_workers(state, mine))


def living_workers(state: JobState, mine: WorldNode) -> list[Worker]:
    """Return our workers of the standing world that have not failed, in the order of ranks."""
    found = [state.workers.get(named.slot) for named in mine.workers]
    return [
        worker
        for worker, named in zip(found, mine.workers, strict=True)
        if worker is not None
        and worker.nonce == named.nonce
        and worker.stage is not WorkerStage.FAILED
    ]

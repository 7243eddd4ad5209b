"""The cause to which a slot's time counts, derived from the core's state after a decision. Pure.

Level-triggered like the core itself: the function reads the state alone, so it does not matter
which events led there, or whether one was missed.
"""

import math

from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import Generation, Slot
from elasticd.records.job import target_nodes
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World
from elasticd.rendezvous.own_record import desired_generation, is_shut_out, my_node
from elasticd.rendezvous.state import JobState, Stage, Worker, WorkerStage

__all__ = ["cause_of", "world_end_parts"]

UNHEARD_S = 0.1
"""How long before a heartbeat a commit was made, on average, that only this one would tell of."""


def cause_of(state: JobState, slot: Slot) -> TimeCause | None:
    """Return the cause for which the slot is held; None if it is not this job's."""
    worker = state.workers.get(slot)
    if slot not in state.slots and worker is None:
        return None
    if state.is_over:
        return _at_end(state, worker)
    if state.is_world_ended:
        return TimeCause.WAIT
    if state.stage is not Stage.MEMBER:
        return _while_leaving(state, worker)
    world, mine = state.world, my_node(state)
    if world is None:
        return TimeCause.WAIT if _is_ready(state, worker) else TimeCause.START
    if mine is None:
        if is_shut_out(state):
            return TimeCause.RECOVER
        return TimeCause.SPARE if _is_spare(state, world, worker) else TimeCause.START
    named = next((each for each in mine.workers if each.slot == slot), None)
    if named is None:
        return _beside_world(state, slot)
    if state.is_in_process:
        is_lost = worker is not None and worker.nonce > named.nonce
        return TimeCause.RECOVER if is_lost else _in_process(state, world, worker)
    return _restart(state, slot)


def world_end_parts(state: JobState) -> list[tuple[TimeCause, float]]:
    """Return what a slot's open time went to when its world ended and no other one began.

    The step in flight is lost with the world. After a fault it waited for a rank that was lost, and
    where nodes left in order, for a rank that has left.
    """
    step_s = state.pace.step_s if state.pace is not None else 0.0
    if not _is_planned_end(state):
        return [(TimeCause.REDONE, step_s), (TimeCause.NOTICE, math.inf)]
    heard = (TimeCause.TRAIN, UNHEARD_S)
    return [heard, (TimeCause.REDONE, step_s), (TimeCause.RESIZE, math.inf)]


def _is_planned_end(state: JobState) -> bool:
    """Return whether the job waits for nodes only because nodes left in order, without a fault
    before.
    """
    status = state.status
    if status is None:
        return False
    return status.reason.is_planned or status.reason is Reason.NODE_LEFT


def _at_end(state: JobState, worker: Worker | None) -> TimeCause:
    """Return whether the job is being stopped, and its workers live only for the last
    checkpoint.
    """
    is_stopped = state.status is not None and state.status.phase is Phase.STOPPED
    if is_stopped and worker is not None and worker.is_attached and state.spec.checkpoint:
        return TimeCause.SAVE
    return TimeCause.START


def _while_leaving(state: JobState, worker: Worker | None) -> TimeCause:
    if state.leaving is None:
        return TimeCause.RECOVER  # The lease is lost, or others shut us out.
    if worker is None:
        return TimeCause.RESIZE
    if not state.is_in_process:
        is_training = worker.stage is WorkerStage.RUNNING and not worker.stop_sent
    else:
        is_training = worker.entered != 0 and worker.stepped == worker.entered
    return TimeCause.TRAIN if is_training else TimeCause.RESIZE


def _beside_world(state: JobState, slot: Slot) -> TimeCause:
    """Return the cause for a slot of this node that the world does not name: it was lost, or will
    join.
    """
    failure = state.slot_failures.get(slot)
    return TimeCause.RECOVER if failure is not None and failure.is_left_out else TimeCause.START


def _in_process(state: JobState, world: World, worker: Worker | None) -> TimeCause:
    if worker is None or worker.stage is WorkerStage.FAILED:
        return TimeCause.START if _has_finished(worker, state) else TimeCause.RECOVER
    if worker.is_finished:
        return TimeCause.START
    stepped, entered = worker.stepped, worker.entered
    if entered == world.generation and stepped == entered:
        if _is_fault_known(state, world.generation):
            return TimeCause.RECOVER
        return TimeCause.PAUSE if worker.is_paused else TimeCause.TRAIN
    if world.at_step is not None and entered not in (0, world.generation) and stepped == entered:
        # Until the step that was agreed on.
        return TimeCause.PAUSE if worker.is_paused else TimeCause.TRAIN
    return _changing(world)


def _restart(state: JobState, slot: Slot) -> TimeCause:
    world, worker = state.world, state.workers.get(slot)
    assert world is not None
    if worker is None:
        return TimeCause.START if slot in state.done else _changing(world)
    is_of_it = worker.generation == world.generation == desired_generation(state)
    if is_of_it and worker.stage is WorkerStage.RUNNING:
        is_broken = _is_fault_known(state, world.generation)
        return TimeCause.RECOVER if is_broken else TimeCause.TRAIN
    return TimeCause.RECOVER if worker.stage is WorkerStage.FAILED else _changing(world)


def _is_fault_known(state: JobState, generation: Generation) -> bool:
    """Return whether this node knows that the generation cannot go on as it is."""
    failure = state.failure
    if failure is not None and failure.generation == generation:
        return True
    if state.broken == generation:
        return True
    world, dead = state.world, state.dead
    return bool(dead) and world is not None and any(n.incarnation in dead for n in world.nodes)


def _has_finished(worker: Worker | None, state: JobState) -> bool:
    return worker is None and any(exit_.code == 0 for exit_ in state.exits)


def _changing(world: World) -> TimeCause:
    if world.reason is Reason.FIRST_WORLD:
        return TimeCause.START
    # A node that says goodbye is no fault either, where all leave together at a step.
    is_planned = world.reason.is_planned or world.at_step is not None
    return TimeCause.RESIZE if is_planned else TimeCause.RECOVER


def _is_spare(state: JobState, world: World, worker: Worker | None) -> bool:
    """Return whether the slot is a spare. One that is about to be taken into the world is not."""
    is_enough = len(world.nodes) >= target_nodes(state.spec, state.wants)
    return is_enough and _is_ready(state, worker)


def _is_ready(state: JobState, worker: Worker | None) -> bool:
    """Return whether the slot could be in a world at once."""
    if not state.is_pool_ready:
        return False
    return not state.is_in_process or (worker is not None and worker.is_attached)

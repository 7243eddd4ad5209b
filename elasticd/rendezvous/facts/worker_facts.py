"""Takes facts about our own worker processes into the state."""

import dataclasses
from typing import assert_never

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Rank
from elasticd.records.member import Exit, StallLimit
from elasticd.records.reason import Reason
from elasticd.rendezvous import event as ev
from elasticd.rendezvous.culprit import has_ended_by_signal
from elasticd.rendezvous.next_world.propose import schedule_proposal
from elasticd.rendezvous.slot_failures import following
from elasticd.rendezvous.stages import with_worker_stage
from elasticd.rendezvous.state import JobState, Pace, Worker, WorkerStage, replace

__all__ = ["WorkerEvent", "with_kept", "worker_changed"]

Attachment = (
    ev.WorkerAttached
    | ev.WorkerEntered
    | ev.WorkerFormed
    | ev.WorkerLeft
    | ev.WorkerStepped
    | ev.WorkerFinished
    | ev.WorkerPaced
    | ev.WorkerBroken
    | ev.WorkerStalled
    | ev.WorkerResumed
)
WorkerEvent = ev.WorkerStarted | ev.WorkerFailed | ev.WorkerExited | Attachment


def worker_changed(state: JobState, event: WorkerEvent, now_s: float) -> JobState:
    """Take in what happened to one process; reports of a process that does not count any more are
    ignored.
    """
    worker = state.workers.get(event.slot)
    if worker is None or worker.nonce != event.nonce:
        return state
    match event:
        case ev.WorkerStarted():
            if worker.stage is not WorkerStage.STARTING:
                return state
            return _with(state, with_worker_stage(worker, WorkerStage.RUNNING))
        case ev.WorkerFailed(failure=failure):
            if worker.stop_sent or worker.stage is WorkerStage.FAILED:
                return state
            state = _with(state, with_worker_stage(worker, WorkerStage.FAILED))
            return _lost(state, worker, failure, now_s)
        case ev.WorkerExited():
            return _exited(state, worker, event, now_s)
        case _:
            return _attachment_changed(state, worker, event, now_s)


def _exited(state: JobState, worker: Worker, event: ev.WorkerExited, now_s: float) -> JobState:
    rest = {slot: w for slot, w in state.workers.items() if slot != event.slot}
    state = replace(state, workers=rest)
    if worker.stop_sent:
        return state  # A script that ends well on SIGTERM has not finished.
    if worker.generation == 0 and not worker.is_attached:
        return _never_attached(state, worker, event.failure, now_s)
    if worker.generation != state.adopted:
        return state
    exits = (*state.exits, Exit(rank=worker.rank, code=event.code))
    state = replace(state, exits=exits)
    if event.code == 0 and worker.is_attached and not worker.is_finished:
        # It left in the middle; should its last word come late, nothing hangs on this.
        state = _with_slot_failure(state, worker, _steps_made(state, worker), now_s)
    if event.code == 0:
        state = replace(state, done={**state.done, worker.slot: worker.nonce})
    if event.code == 0 or worker.stage is WorkerStage.FAILED:
        return state
    return _lost(state, worker, event.failure, now_s)


def _lost(state: JobState, worker: Worker, failure: Failure | None, now_s: float) -> JobState:
    if worker.generation == 0 and not worker.is_attached:
        return _never_attached(state, worker, failure, now_s)
    if worker.generation != state.adopted:
        return state
    is_own = failure is not None and not (failure.is_secondary or failure.has_lost_state)
    if state.is_in_process and failure is not None and is_own:
        state = _with_slot_failure(state, worker, _steps_made(state, worker), now_s)
        failure = dataclasses.replace(failure, in_a_row=state.slot_failures[worker.slot].count)
    known = state.failure
    if failure is not None:
        is_consequence = known is not None and _is_secondary_to(state, known, failure)
        if known is None or is_consequence or known.generation != worker.generation:
            state = replace(state, failure=failure, raised_alike=1)
        elif failure.is_same_error(known):
            state = replace(state, raised_alike=state.raised_alike + 1)
    reason = state.failure.reason if state.failure is not None else Reason.WORKER_KILLED
    state = replace(state, timing=dataclasses.replace(state.timing, fact_s=now_s))
    return schedule_proposal(state, reason, now_s=now_s, is_own=True)


def _is_secondary_to(state: JobState, known: Failure, failure: Failure) -> bool:
    """Return whether the first report is the consequence of what is reported now."""
    if known.is_secondary or known.has_lost_state:
        return not (failure.is_secondary or failure.has_lost_state)
    is_struck = has_ended_by_signal(failure) and not has_ended_by_signal(known)
    return is_struck and not state.is_in_process


def _never_attached(
    state: JobState, worker: Worker, failure: Failure | None, now_s: float
) -> JobState:
    """Handle a worker that ended too soon while it was being prepared."""
    state = replace(state, failure=failure or state.failure)
    return _with_slot_failure(state, worker, None, now_s)


def _with_slot_failure(
    state: JobState, worker: Worker, steps: int | None, now_s: float
) -> JobState:
    failure = following(state.slot_failures.get(worker.slot), steps=steps, now_s=now_s)
    return replace(state, slot_failures={**state.slot_failures, worker.slot: failure})


def _steps_made(state: JobState, worker: Worker) -> int:
    if worker.first_step is None or state.pace is None:
        return 0
    return state.pace.step - worker.first_step + 1


def _attachment_changed(
    state: JobState, worker: Worker, event: Attachment, now_s: float
) -> JobState:
    match event:
        case ev.WorkerAttached():
            attached = dataclasses.replace(worker, is_attached=True)
            if attached.stage is WorkerStage.STARTING:
                attached = with_worker_stage(attached, WorkerStage.RUNNING)
            state = replace(state, is_in_process=True)
            return schedule_proposal(
                _with(state, attached), Reason.JOINED, now_s=now_s, is_own=True
            )
        case ev.WorkerEntered(generation=generation):
            if generation != worker.ordered:
                return state
            timing = dataclasses.replace(state.timing, entered_s=now_s)
            state = replace(state, timing=timing)
            return _with(state, _in_generation(worker, generation))
        case ev.WorkerFormed(generation=generation):
            if state.world is not None and generation == state.world.generation:
                state = replace(state, formed_world=state.world)
            backend = event.backend
            return _with(state, dataclasses.replace(worker, has_state=True, backend=backend))
        case ev.WorkerLeft():
            if worker.generation != 0:
                return state  # It was told of another world since.
            return _with(state, _in_generation(worker, Generation(0)))
        case ev.WorkerStepped():
            return _stepped(state, worker, event, now_s)
        case ev.WorkerFinished(training=training):
            state = replace(state, training=training, trained_in=worker.entered)
            return _with(state, dataclasses.replace(worker, is_finished=True, stall=None))
        case ev.WorkerPaced():
            return _paced(state, worker, event, now_s)
        case ev.WorkerBroken():
            return _broken(state, worker, event, now_s)
        case ev.WorkerStalled(stall=stall):
            # Also while it is on its way to a world that begins at a later step.
            if stall.generation != worker.runs_in or worker.generation == 0:
                return state
            if stall.limit is not StallLimit.PROGRESS and _is_alone(state):
                return state  # No other node could be waiting for it.
            state = _with(state, dataclasses.replace(worker, stall=stall))
            return schedule_proposal(state, Reason.WORKER_HUNG, now_s=now_s, is_own=True)
        case ev.WorkerResumed():
            if worker.stall is None or worker.stall.has_returned:
                return state
            return _with(state, dataclasses.replace(worker, stall=None))
        case _:
            assert_never(event)


def _broken(state: JobState, worker: Worker, event: ev.WorkerBroken, now_s: float) -> JobState:
    generation = event.generation
    if generation != worker.generation or generation < state.broken:
        return state
    known = set(state.cut_off) if generation == state.broken else set()
    if generation > state.broken or not known.issuperset(event.unreachable):
        timing = dataclasses.replace(state.timing, fact_s=now_s)
        cut_off = tuple(sorted(known.union(event.unreachable)))
        state = replace(state, broken=generation, cut_off=cut_off, timing=timing)
    elif worker.broken == generation:
        return state
    state = _with(state, dataclasses.replace(worker, broken=generation))
    return schedule_proposal(state, Reason.COLLECTIVE_BROKEN, now_s=now_s, is_own=True)


def _is_alone(state: JobState) -> bool:
    return state.world is not None and len(state.world.nodes) == 1


def _in_generation(worker: Worker, generation: Generation) -> Worker:
    by_s = worker.leave_by_s if generation else None
    return dataclasses.replace(
        worker, entered=generation, stall=None, is_paused=False, leave_by_s=by_s
    )


def _stepped(state: JobState, worker: Worker, event: ev.WorkerStepped, now_s: float) -> JobState:
    if event.generation != worker.generation:
        return state
    first = event.step if worker.first_step is None else worker.first_step
    worker = dataclasses.replace(
        worker, stepped=event.generation, first_step=first, has_state=True, stall=None
    )
    state = _with(state, worker)
    known = state.pace
    pace = Pace(
        generation=event.generation,
        step=event.step,
        at_s=now_s,
        step_s=known.step_s if known is not None else 0.0,
        stepped_s=now_s,
    )
    state = replace(state, pace=pace)
    incident = state.incident
    if incident is not None and incident.generation == event.generation:
        slower = sum(event.phases_s.values()) > _workers_part_s(incident.phases_s)
        phases = {**incident.phases_s, **event.phases_s} if slower else incident.phases_s
        state = replace(
            state,
            incident=dataclasses.replace(
                incident,
                phases_s=phases,
                step=event.step,
                lost_steps=max(incident.lost_steps, event.lost_steps),
                received_bytes=incident.received_bytes + event.received_bytes,
                restored_from=incident.restored_from or event.place,
                note=incident.note or event.note,
            ),
        )
    # A replacement may have waited for this.
    return schedule_proposal(state, Reason.JOINED, now_s=now_s, is_own=True)


_AGENTS_PHASES = ("detect", "agree", "push", "stop", "start")


def _workers_part_s(phases_s: "dict[str, float] | object") -> float:
    assert isinstance(phases_s, dict)
    return sum(value for name, value in phases_s.items() if name not in _AGENTS_PHASES)


def _paced(state: JobState, worker: Worker, event: ev.WorkerPaced, now_s: float) -> JobState:
    # A pause counts also in the world that it is yet to leave.
    if event.generation == worker.entered and event.is_paused != worker.is_paused:
        worker = dataclasses.replace(worker, is_paused=event.is_paused)
        state = _with(state, worker)
    if event.generation != worker.generation or worker.stepped != event.generation:
        return state
    pace = Pace(generation=event.generation, step=event.step, at_s=now_s, step_s=event.step_s)
    known = state.pace if state.pace is not None else pace
    # What is paused makes no steps, and nothing is wrong with it.
    return replace(state, pace=known.further(pace, is_paused=event.is_paused))


def with_kept(state: JobState, event: ev.WorkersKept) -> JobState:
    """Take over attached workers of an earlier incarnation."""
    taken = {
        slot: Worker(
            slot=slot,
            nonce=nonce,
            generation=Generation(0),
            rank=Rank(0),
            stage=WorkerStage.RUNNING,
            is_attached=True,
            has_state=slot in event.with_state,
        )
        for slot, nonce in event.workers
    }
    nonces = {**state.nonces, **dict(event.workers)}
    return replace(state, workers=taken, nonces=nonces, is_in_process=True)


def _with(state: JobState, worker: Worker) -> JobState:
    return replace(state, workers={**state.workers, worker.slot: worker})

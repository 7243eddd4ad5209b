"""Which part of the budget a change of world costs, and which changes end the job instead."""

import dataclasses

from elasticd.records.failure import Failure
from elasticd.records.job import Budget, JobStatus
from elasticd.records.reason import Cause, Phase, Reason
from elasticd.rendezvous.next_world.change import WorldChange, alike
from elasticd.rendezvous.state import JobState

__all__ = [
    "budget_of",
    "failed",
    "is_paid",
    "is_refilled",
]

_PAID = {
    Cause.USER_ERROR: "errors of the script (--max-restarts)",
    Cause.NODE_LOSS: "losses of workers and nodes (--max-node-losses)",
    Cause.PREEMPTION: "nodes that left",
    Cause.RESIZE: "changes of size",
}


def failed(state: JobState, change: WorldChange, now_s: float) -> JobStatus | None:
    """Return the final status, if the budget is spent for this change, or it would only repeat an
    error.
    """
    final = _failed(state, change, now_s)
    culprit = final.failure if final is not None else None
    if final is None or culprit is None or not culprit.has_full_disk:
        return final
    room = f"a disk of {culprit.host} is full: make room there, and start the job again"
    return dataclasses.replace(final, message=f"{final.message}; {room}")


def _failed(state: JobState, change: WorldChange, now_s: float) -> JobStatus | None:
    status, cause = state.status, change.cause
    assert status is not None
    if state.world is None or state.is_world_ended or cause is None:
        return None
    culprit = change.culprit
    failed = dataclasses.replace(
        status, phase=Phase.FAILED, generation=state.world.generation, failure=culprit
    )
    if culprit is not None and culprit.ends_job:
        return dataclasses.replace(
            failed,
            reason=Reason.ENDS_JOB,
            message=f"rank {culprit.rank} raised an error that is to end the job",
        )
    shared = alike(state, state.world) if state.is_in_process else None
    if shared is not None and shared.is_all:
        return dataclasses.replace(
            failed,
            failure=shared.failure,
            reason=Reason.REPEATED_ERROR,
            message=f"all {state.world.size} ranks raised the same exception at the same line: "
            "a restart would not help",
        )
    if is_paid(status, culprit):
        return None
    if culprit is not None and _is_poisoned(status.last_user_error, culprit):
        return dataclasses.replace(
            failed,
            reason=Reason.REPEATED_ERROR,
            message=f"the same exception at the same line twice, both times after step "
            f"{culprit.step}: a restart would not help",
        )
    if culprit is not None and _is_repeated(status.last_user_error, culprit):
        return dataclasses.replace(
            failed,
            reason=Reason.REPEATED_ERROR,
            message="the same exception at the same line in two generations in a row, and no "
            "process group was ever formed: restarting will not help",
        )
    if not budget_of(state, now_s).is_spent(cause, state.spec.limits):
        return None
    limit = getattr(state.spec.limits, cause.value)
    return dataclasses.replace(
        failed,
        reason=Reason.BUDGET_SPENT,
        message=f"the restart budget for {_PAID[cause]} is spent: {limit} used of {limit}"
        if limit
        else f"no restart is allowed for {_PAID[cause]}",
    )


def is_paid(status: JobStatus, culprit: Failure | None) -> bool:
    """Return whether the process that ended has been charged for already: nobody dies twice.

    A node whose record reaches etcd late describes a process that another world named once more.
    """
    last = status.last_user_error
    return culprit is not None and last is not None and culprit.is_same_process(last)


def _is_repeated(last: Failure | None, culprit: Failure) -> bool:
    return (
        last is not None
        and culprit.generation == last.generation + 1
        and culprit.is_same_error(last)
        and culprit.has_group is False
        and last.has_group is False
    )


def _is_poisoned(last: Failure | None, culprit: Failure) -> bool:
    """Return whether a second rank met the same error at the same step: then it is in the script or
    the data.
    """
    return (
        last is not None
        and culprit.step is not None
        and culprit.step == last.step
        and culprit.is_same_error(last)
    )


def is_refilled(state: JobState, now_s: float) -> bool:
    """Return whether the job made progress since the last refill: by steps if seen, otherwise by
    time.

    What a world made that is over was looked at when it ended; to wait for nodes is no progress.
    """
    assert state.status is not None
    if state.is_world_ended:
        return False
    limits = state.spec.limits
    if state.formed_s is not None and now_s - state.formed_s >= limits.refill_after_s:
        return True
    made = state.pace.step - state.status.refilled_step if state.pace is not None else 0
    return made >= limits.refill_after_steps


def budget_of(state: JobState, now_s: float) -> Budget:
    """Return the used part of the budget."""
    assert state.status is not None
    return Budget() if is_refilled(state, now_s) else state.status.budget

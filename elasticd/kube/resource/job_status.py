"""The status for an object, from the records of its job."""

from collections.abc import Iterable
from dataclasses import replace

from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.job_records import OPERATOR, JobRecords, failure_text
from elasticd.kube.resource.name import selector
from elasticd.kube.resource.plain_text import plain_text
from elasticd.kube.resource.status import (
    CheckpointStatus,
    Condition,
    ConditionType,
    ElasticJobStatus,
    ElasticPhase,
)
from elasticd.kube.resource.timestamp import timestamp
from elasticd.records.ids import JobName
from elasticd.records.reason import Phase

__all__ = ["DEADLINE_WHY", "is_same", "lost_status", "status_of", "unsubmitted_status"]

DEADLINE_WHY = "spec.activeDeadlineSeconds are over"
"""The reason in the operator's want if it stopped a job because of its deadline."""

_PHASES = {
    Phase.PENDING: ElasticPhase.PENDING,
    Phase.RUNNING: ElasticPhase.RUNNING,
    Phase.WAITING: ElasticPhase.WAITING,
    Phase.SUCCEEDED: ElasticPhase.SUCCEEDED,
    Phase.FAILED: ElasticPhase.FAILED,
    Phase.STOPPED: ElasticPhase.STOPPED,
}


def status_of(
    job: ElasticJob, name: JobName, found: JobRecords, *, wrong: str, now_unix_s: float
) -> ElasticJobStatus:
    """Return the status of an object whose job is in etcd.

    Args: job: the object, with its present status. name: the name of the job in etcd. found: the
    job's records. wrong: why the object's present spec cannot be applied, as a sentence; empty if
    it can. now_unix_s: the time for changes that are new.
    """
    before, phase = job.status, _phase(job, found)
    is_running = phase is ElasticPhase.RUNNING
    nodes = found.status.nodes if is_running or phase is ElasticPhase.STOPPING else 0
    wanted = 0 if phase.is_final else found.wanted_nodes
    measured, reason = found.measured, _reason(phase, found)
    rate = measured.steps_per_second
    message = _message(phase, found)
    return replace(
        before,
        observed_generation=job.generation,
        job=name,
        phase=phase,
        message=plain_text(message if phase.is_final else _with_wrong(message, wrong)),
        size=f"{nodes}/{wanted}",
        nodes=nodes,
        wanted=wanted,
        generation=int(found.status.generation),
        step=_step(before, found),
        steps_per_second=_rounded(rate) if is_running and rate is not None else None,
        goodput=round(found.goodput, 3) if found.goodput is not None else before.goodput,
        losses_by_reason=dict(sorted(found.losses_by_reason.items())),
        checkpoint=_checkpoint(before, found),
        replicas=nodes,
        selector=selector(name),
        start_time=timestamp(found.spec.submitted_at_unix_s) if found.spec.owner else "",
        completion_time=(before.completion_time or timestamp(now_unix_s)) if phase.is_final else "",
        conditions=_conditions(job, phase, reason, message, wrong, now_unix_s),
    )


def unsubmitted_status(
    job: ElasticJob, name: JobName, *, wrong: str, reason: str, message: str, now_unix_s: float
) -> ElasticJobStatus:
    """Return the status of an object without a job: the object is wrong, or waits for something."""
    phase = ElasticPhase.INVALID if wrong else ElasticPhase.PENDING
    spec = job.spec
    wanted = 0 if wrong or spec is None else spec.replicas or spec.max_nodes
    return ElasticJobStatus(
        observed_generation=job.generation,
        phase=phase,
        message=plain_text(wrong or message),
        size=f"0/{wanted}",
        wanted=wanted,
        selector=selector(name),
        conditions=_conditions(job, phase, reason, message, wrong, now_unix_s),
    )


def lost_status(job: ElasticJob, *, now_unix_s: float) -> ElasticJobStatus:
    """Return the status of an object whose job was submitted and has no records any more."""
    message = (
        f"etcd has no record of job {job.status.job} any more, and nobody saw its end: delete the "
        "object, and create it anew to run it again."
    )
    phase = ElasticPhase.LOST
    return replace(
        job.status,
        observed_generation=job.generation,
        phase=phase,
        message=message,
        size=f"0/{job.status.wanted}",
        nodes=0,
        replicas=0,
        steps_per_second=None,
        conditions=_conditions(job, phase, "RecordsGone", message, "", now_unix_s),
    )


def is_same(one: ElasticJobStatus, other: ElasticJobStatus) -> bool:
    """Return whether two statuses differ only in numbers that change all the time."""
    return _outline(one) == _outline(other)


# --- private ----------------------------------------------------------------------------------


def _outline(status: ElasticJobStatus) -> tuple[object, ...]:
    conditions = tuple((one.type, one.status, one.reason) for one in status.conditions)
    return (status.phase, status.job, status.selector, status.observed_generation, conditions)


def _phase(job: ElasticJob, found: JobRecords) -> ElasticPhase:
    known = _PHASES.get(found.status.phase)
    if known is None:
        # The phase comes from a newer version: the only fact is that the job is not over.
        return ElasticPhase.RUNNING if found.status.nodes else ElasticPhase.PENDING
    if not known.is_final and found.is_stop_wanted:
        return ElasticPhase.STOPPING
    return known


def _is_past_deadline(found: JobRecords) -> bool:
    want = found.wants.get(OPERATOR)
    return want is not None and want.is_stop and want.why == DEADLINE_WHY


def _reason(phase: ElasticPhase, found: JobRecords) -> str:
    if phase is ElasticPhase.STOPPED and _is_past_deadline(found):
        return "DeadlineExceeded"
    if phase.is_final or phase is ElasticPhase.WAITING:
        return "".join(word.capitalize() for word in found.status.reason.value.split("_"))
    return {ElasticPhase.PENDING: "FirstWorld", ElasticPhase.STOPPING: "StopRequested"}.get(
        phase, "WorldFormed"
    )


def _message(phase: ElasticPhase, found: JobRecords) -> str:
    if phase is ElasticPhase.STOPPED and _is_past_deadline(found):
        more = found.message.removeprefix(DEADLINE_WHY)  # Nodes that stopped it say the same.
        return f"It was stopped: {DEADLINE_WHY}. {more}".rstrip()
    if phase is ElasticPhase.STOPPING:
        why = next((want.why for want in found.wants.values() if want.is_stop and want.why), "")
        return f"It is being stopped{f': {why}' if why else ''}."
    failure = found.status.failure
    if phase is ElasticPhase.FAILED and failure is not None:
        return (
            f"{found.message}; {failure_text(failure)}" if found.message else failure_text(failure)
        )
    return found.message


def _with_wrong(message: str, wrong: str) -> str:
    """Return the message of a job that goes on although its object has an error."""
    return f"{message.rstrip('.')}. {wrong}" if message and wrong else message or wrong


def _step(before: ElasticJobStatus, found: JobRecords) -> int | None:
    if found.ended_at is not None:
        return found.ended_at
    if found.measured.step is not None:
        return found.measured.step
    return found.step or before.step


def _rounded(rate: float) -> float:
    """Return the rate with three digits, so that a small change changes nothing in the API."""
    return float(f"{rate:.3g}")


def _checkpoint(before: ElasticJobStatus, found: JobRecords) -> CheckpointStatus | None:
    measured = found.measured
    if measured.checkpoint_unix_s is None:
        return before.checkpoint
    return CheckpointStatus(
        step=measured.checkpoint_step, time=timestamp(measured.checkpoint_unix_s)
    )


def _conditions(
    job: ElasticJob,
    phase: ElasticPhase,
    reason: str,
    message: str,
    wrong: str,
    now_unix_s: float,
) -> tuple[Condition, ...]:
    is_waiting = phase in (ElasticPhase.PENDING, ElasticPhase.WAITING, ElasticPhase.LOST)
    is_failed = phase in (ElasticPhase.FAILED, ElasticPhase.STOPPED)
    standing = (
        (ConditionType.RUNNING, phase is ElasticPhase.RUNNING, reason, message),
        (ConditionType.WAITING, is_waiting, reason, message),
        (ConditionType.COMPLETE, phase is ElasticPhase.SUCCEEDED, reason, message),
        (ConditionType.FAILED, is_failed, reason, message),
        (ConditionType.INVALID, bool(wrong), "SpecRefused", wrong),
    )
    return tuple(_timed(job, standing, now_unix_s))


def _timed(
    job: ElasticJob, standing: Iterable[tuple[ConditionType, bool, str, str]], now_unix_s: float
) -> Iterable[Condition]:
    """Set the time of each condition's last change; the last status has the earlier times."""
    for kind, is_true, reason, message in standing:
        status = "True" if is_true else "False"
        before = job.status.condition(kind)
        has_turned = before is None or before.status != status
        yield Condition(
            type=kind,
            status=status,
            reason=reason if is_true else f"Not{kind}",
            message=plain_text(message) if is_true else "",
            last_transition_time=(
                timestamp(now_unix_s)
                if has_turned or before is None
                else before.last_transition_time
            ),
            observed_generation=job.generation,
        )

"""The events about an object: one for each new world of its job, and one for each new phase."""

from collections.abc import Iterator

from elasticd.control.report.change_report import ChangeReport
from elasticd.kube.decide.action import TellEvent
from elasticd.kube.resource.elastic_job import ElasticJob, JobKey
from elasticd.kube.resource.job_records import JobRecords, failure_text
from elasticd.kube.resource.status import ConditionType, ElasticJobStatus, ElasticPhase
from elasticd.records.ids import names
from elasticd.records.reason import Reason

__all__ = ["events"]

_REASONS = {
    ElasticPhase.WAITING: "Waiting",
    ElasticPhase.STOPPING: "Stopping",
    ElasticPhase.SUCCEEDED: "Complete",
    ElasticPhase.FAILED: "Failed",
    ElasticPhase.STOPPED: "Stopped",
    ElasticPhase.LOST: "RecordsGone",
}
"""The phases whose begin has an event of its own; for a running job, the world's event is
enough."""
_BAD = {ElasticPhase.WAITING, ElasticPhase.FAILED, ElasticPhase.LOST}


def events(
    job: ElasticJob, found: JobRecords | None, status: ElasticJobStatus, *, told_to: int
) -> Iterator[TellEvent]:
    """Return events about changes that the object's last status does not have; of the worlds, only
    those after `told_to`.
    """
    before = job.status
    if found is not None:
        for change in found.changes:
            if change.generation > max(before.generation, told_to):
                yield _world(job.key, change)
    invalid = status.condition(ConditionType.INVALID)
    if invalid is not None and invalid.status == "True":
        old = before.condition(ConditionType.INVALID)
        if old is None or old.message != invalid.message:
            yield TellEvent(
                job=job.key,
                reason="Invalid",
                message=invalid.message,
                is_warning=True,
                topic="spec",
            )
    if found is not None and not before.job:
        yield TellEvent(
            job=job.key,
            reason="Submitted",
            message=f"It is job {status.job} in etcd.",
            topic="submission",
        )
    phase = ElasticPhase(status.phase)
    if phase in _REASONS and status.phase != before.phase and (found or phase is ElasticPhase.LOST):
        yield TellEvent(
            job=job.key,
            reason=_REASONS[phase],
            message=_state_sentence(status),
            is_warning=phase in _BAD,
            topic="phase",
            mark=f" ({status.generation})",
        )


# --- private ----------------------------------------------------------------------------------


def _state_sentence(status: ElasticJobStatus) -> str:
    about = f"Job {status.job} is {status.phase.lower()}"
    return f"{about}: {status.message}" if status.message else f"{about}."


def _world(job: JobKey, change: ChangeReport) -> TellEvent:
    """Return an event that tells which nodes train now, and why the world changed."""
    nodes = f"{change.nodes} node{'' if change.nodes == 1 else 's'}"
    ranks = f"{change.world_size} rank{'' if change.world_size == 1 else 's'}"
    parts = [f"Generation {change.generation} with {nodes}, {ranks}: {change.reason.value}"]
    if change.lost:
        parts.append(f"without {names(change.lost)}")
    if change.culprit is not None:
        parts.append(failure_text(change.culprit))
    is_bad = change.reason is not Reason.FIRST_WORLD and not change.reason.is_planned
    return TellEvent(
        job=job,
        reason="WorldChanged" if change.generation > 1 else "WorldFormed",
        message=f"{'; '.join(parts)}.",
        is_warning=is_bad,
        topic="world",
        generation=int(change.generation),
    )

"""The actions for a deleted ElasticJob: a finalizer keeps the object until its job is over."""

from collections.abc import Iterator

from elasticd.kube.decide.action import Action, RemoveFinalizer, StopJob, TellEvent
from elasticd.kube.decide.cluster import ObservedCluster
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.job_records import JobRecords
from elasticd.kube.resource.name import FINALIZER, FORCE_DELETE
from elasticd.records.ids import JobName

__all__ = ["delete", "is_forced"]


def delete(
    job: ElasticJob, name: JobName, found: JobRecords | None, seen: ObservedCluster
) -> Iterator[Action]:
    """Stop the job, and remove the object's finalizer once no node serves the job.

    If only another controller's finalizer keeps the object, it may stay for long, and its job must
    not train.
    """
    if found is not None and found.needs_stop:
        yield StopJob(
            job=name,
            uid=job.uid,
            why="its ElasticJob was deleted",
            may_end=found.may_be_ended,
        )
    if FINALIZER not in job.finalizers:
        return
    is_known_over = seen.records is None and job.status.is_final
    if is_forced(job) or is_known_over:
        yield RemoveFinalizer(job=job.key)
    elif seen.records is None and not seen.is_etcd_away:
        return
    elif seen.records is None:
        event = TellEvent(
            job=job.key,
            reason="DeletionWaits",
            message=(
                "etcd does not answer, so the job cannot be stopped: the object goes when it does, "
                f"or at once with the annotation {FORCE_DELETE}=true."
            ),
            is_warning=True,
            topic="deletion",
        )
        told = seen.memory.objects.get(job.uid)
        if told is None or told.told.get(event.topic) != event.content:
            yield event
    elif found is None or (found.is_over and not found.members):
        yield RemoveFinalizer(job=job.key)


def is_forced(job: ElasticJob) -> bool:
    """Return whether a deleted object goes at once, whatever becomes of its job."""
    is_asked = job.annotations.get(FORCE_DELETE, "false").lower() != "false"
    return job.deleted_unix_s is not None and is_asked

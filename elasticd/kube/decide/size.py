"""The job's size: `spec.replicas` as a want, or as a copy of the autoscaler's want."""

from collections.abc import Iterator

from elasticd.kube.decide.action import (
    Action,
    AddFinalizer,
    ApplyReplicas,
    RemovePolicy,
    TellEvent,
    WritePolicy,
    WriteWant,
)
from elasticd.kube.decide.memory import ObjectMemory
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.job_records import JobRecords
from elasticd.kube.resource.job_spec import has_policy_of, policy_of
from elasticd.records.ids import JobName

__all__ = ["add_finalizer", "decide_policy", "decide_size", "fill_replicas"]


def add_finalizer(job: ElasticJob) -> AddFinalizer:
    """Add the finalizer to a new object, and set missing `replicas` with the same write."""
    if job.spec is None or job.spec.replicas is not None:
        return AddFinalizer(job=job.key)
    return AddFinalizer(job=job.key, replicas=job.spec.max_nodes, at_generation=job.generation)


def fill_replicas(job: ElasticJob, memory: ObjectMemory) -> Iterator[Action]:
    """Set the object's `replicas`, without which a read of /scale is an error."""
    if job.spec is not None and job.spec.replicas is None:
        yield from _apply(job, memory, job.spec.max_nodes)


def decide_policy(
    job: ElasticJob, name: JobName, found: JobRecords, *, now_unix_s: float
) -> Iterator[Action]:
    """Set the job's policy to that of the object; a policy that a person set stays."""
    if has_policy_of(found.policy, job):
        return
    policy = policy_of(job, now_unix_s=now_unix_s)
    if policy is None:
        yield RemovePolicy(job=name, uid=job.uid)
    else:
        yield WritePolicy(job=name, policy=policy)


def decide_size(
    job: ElasticJob, name: JobName, found: JobRecords, memory: ObjectMemory
) -> Iterator[Action]:
    """Write the object's number of nodes as a want; or apply the wanted number to the object."""
    if job.spec is None:
        return
    if job.spec.autoscale is not None:
        yield from _show_wanted(job, name, found, memory)
        return
    replicas = job.spec.replicas
    if replicas is None:
        yield from _apply(job, memory, job.spec.max_nodes)
        return
    standing = found.own_want.nodes if found.own_want is not None else None
    # Without any want a job has its largest size: the same number, and other writers may still ask
    # for less.
    is_needed = standing is not None or replicas != found.spec.max_nodes
    if is_needed and standing != replicas:
        yield WriteWant(job=name, uid=job.uid, nodes=replicas, why=f"spec.replicas of {job.key}")


# --- private ----------------------------------------------------------------------------------


def _show_wanted(
    job: ElasticJob, name: JobName, found: JobRecords, memory: ObjectMemory
) -> Iterator[Action]:
    """Undo another writer's change, since the operator's want would override the autoscaler's."""
    assert job.spec is not None
    if found.own_want is not None and found.own_want.nodes is not None:
        yield WriteWant(job=name, uid=job.uid, nodes=None, why="")
    wanted, shown = found.wanted_nodes, job.spec.replicas
    if shown == wanted or _is_unseen(job, memory):
        return
    last = memory.replicas if memory.replicas is not None else job.status.wanted or None
    if shown is not None and last is not None and shown != last:
        event = TellEvent(
            job=job.key,
            reason="ReplicasUndone",
            message=(
                f"spec.replicas was set to {shown} and is {wanted} again: with spec.autoscale it "
                "shows what the autoscaler wants. Take spec.autoscale out, or pin the size with "
                f"`elasticd scale {name} {shown}`."
            ),
            is_warning=True,
            topic="replicas",
            mark=f" ({job.generation})",
        )
        if memory.told.get(event.topic) != event.content:
            yield event
    yield from _apply(job, memory, wanted)


def _apply(job: ElasticJob, memory: ObjectMemory, replicas: int) -> Iterator[Action]:
    if not _is_unseen(job, memory):
        yield ApplyReplicas(job=job.key, replicas=replicas, at_generation=job.generation)


def _is_unseen(job: ElasticJob, memory: ObjectMemory) -> bool:
    """Return whether the object does not show the last applied value yet."""
    return memory.replicas is not None and memory.replicas_generation == job.generation

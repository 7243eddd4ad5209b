"""The one decision: takes everything that is seen and the time, returns what is to be done.

Each object, each node and each orphan is decided about separately, so that a fault of one does not
delay the others. When the actions have taken effect there is nothing left to do. Until their effect
is seen they may be requested again, which changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from elasticd.kube.decide.action import (
    Action,
    AddFinalizer,
    ApplyStatus,
    DeleteObject,
    StopJob,
    TellEvent,
    WriteJob,
)
from elasticd.kube.decide.cluster import ObservedCluster
from elasticd.kube.decide.deletion import delete
from elasticd.kube.decide.drain import decide_drains
from elasticd.kube.decide.event import events
from elasticd.kube.decide.label import decide_labels
from elasticd.kube.decide.memory import ObjectMemory
from elasticd.kube.decide.size import add_finalizer, decide_policy, decide_size, fill_replicas
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.job_records import JobRecords
from elasticd.kube.resource.job_spec import changed_fields, job_spec
from elasticd.kube.resource.job_status import (
    DEADLINE_WHY,
    is_same,
    lost_status,
    status_of,
    unsubmitted_status,
)
from elasticd.kube.resource.name import (
    FINALIZER,
    job_name,
    job_name_apart,
    job_of_owner,
    owner_prefix,
)
from elasticd.kube.resource.status import ElasticJobStatus
from elasticd.kube.resource.timestamp import unix_s
from elasticd.records.ids import JobName

__all__ = ["STATUS_EVERY_S", "decide"]

STATUS_EVERY_S = 10.0
"""The least time between two writes of a status whose phase stays."""
STATUSES_PER_S = 10.0
"""How many of those writes all jobs together make, if they are more than a hundred."""
UNSEEN_LIMIT_S = 2.0
"""How long a successful write is waited for until the object shows it."""
REVIVED_WHY = "it was over before etcd was restored from a backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One object, and what belongs to it."""

    job: ElasticJob
    name: JobName
    found: JobRecords | None
    memory: ObjectMemory
    status_every_s: float
    now_s: float
    now_unix_s: float


def decide(seen: ObservedCluster, *, now_s: float, now_unix_s: float) -> tuple[Action, ...]:
    """Return what is to be done, in an order that is always the same.

    Args: seen: everything, at one moment. now_s: by the operator's own clock, which only goes
    forward. now_unix_s: by the wall clock, for what Kubernetes counts by it.
    """
    by_uid = _by_uid(seen)
    active = sum(found.is_active for _, found in by_uid.values())
    actions: list[Action] = []
    for uid, job in sorted(seen.jobs.items()):
        name, found = by_uid.get(uid, (None, None))
        look = _Look(
            job=job,
            name=name or JobName(job.status.job) or job_name(job),
            found=found,
            memory=seen.memory.objects.get(uid, ObjectMemory()),
            status_every_s=max(STATUS_EVERY_S, active / STATUSES_PER_S),
            now_s=now_s,
            now_unix_s=now_unix_s,
        )
        actions.extend(_decide_object(look, seen))
    actions.extend(_stop_orphans(seen))
    actions.extend(decide_drains(seen, now_s=now_s))
    actions.extend(decide_labels(seen))
    return tuple(actions)


# --- private ----------------------------------------------------------------------------------


def _by_uid(seen: ObservedCluster) -> dict[str, tuple[JobName, JobRecords]]:
    if seen.records is None:
        return {}
    return {found.spec.uid: (name, found) for name, found in sorted(seen.records.jobs.items())}


def _decide_object(look: _Look, seen: ObservedCluster) -> Iterator[Action]:
    if look.job.deleted_unix_s is not None:
        yield from delete(look.job, look.name, look.found, seen)
        is_kept = bool(look.job.finalizers)  # Ours may be gone, and another controller's stand.
        if look.found is not None and is_kept and not _is_revived(look, look.found):
            yield from _report(look, _standing(look, look.found))
    elif look.found is not None and _is_revived(look, look.found):
        # Its status stays: what was over does not begin again.
        if look.found.needs_stop:
            yield StopJob(job=look.name, uid=look.job.uid, why=REVIVED_WHY)
        yield from _expire(look, look.job.status)
    elif look.found is not None:
        yield from _follow(look, look.found)
    elif look.job.status.is_final:
        yield from _expire(look, look.job.status)
    elif look.job.status.job:
        # Submitted once: what runs twice does more harm than what does not run.
        if seen.records is not None:
            yield from _report(look, lost_status(look.job, now_unix_s=look.now_unix_s))
    else:
        yield from _submit(look, seen)


def _is_revived(look: _Look, found: JobRecords) -> bool:
    """Return whether a job that was seen to be over is not so, or in another way: etcd was restored
    from a backup.
    """
    before = look.job.status
    return before.is_final and _standing(look, found).phase != before.phase


def _submit(look: _Look, seen: ObservedCluster) -> Iterator[Action]:
    """Submit the job, unless something is wrong, or etcd away."""
    job, wrong = look.job, look.job.wrong
    if seen.records is None and not seen.is_etcd_away and not wrong:
        return  # In a moment it is known whether it was submitted.
    reason = "EtcdAway" if seen.records is None else "NotSubmitted"
    message = "etcd does not answer." if seen.records is None else "It is about to be submitted."
    if look.memory.refusal:
        reason, message = "Refused", look.memory.refusal
    if seen.intruded:
        reason, message = "OtherCluster", seen.intruded
    status = unsubmitted_status(
        job, look.name, wrong=wrong, reason=reason, message=message, now_unix_s=look.now_unix_s
    )
    # A new object's first status has its job: one before that would be out of date in a moment, and
    # many new objects wait for each write.
    if wrong or reason != "NotSubmitted" or job.status != ElasticJobStatus():
        yield from _report(look, status)
    if wrong or seen.intruded:
        return
    if FINALIZER not in job.finalizers:
        yield add_finalizer(job)
        return
    yield from fill_replicas(job, look.memory)
    if seen.records is not None:
        name = _free_name(job, seen)
        spec = job_spec(job, name, cluster=seen.identity, now_unix_s=look.now_unix_s)
        yield WriteJob(job=job.key, spec=spec)


def _free_name(job: ElasticJob, seen: ObservedCluster) -> JobName:
    """Return the job's name, or a special one if somebody else's job has that name.

    It may be the job of an object of this name that was deleted by force, or of another Kubernetes
    cluster on the same etcd. A job that is over only gives way.
    """
    assert seen.records is not None
    name = job_name(job)
    standing = seen.records.jobs.get(name)
    return job_name_apart(job) if standing is not None and standing.is_active else name


def _follow(look: _Look, found: JobRecords) -> Iterator[Action]:
    """Keep a job in etcd as its object says, and the object's status as the job is."""
    job = look.job
    status = _standing(look, found)
    yield from _report(look, status)
    if found.is_over:
        yield from _expire(look, status)
        return
    if not found.is_active:
        return  # It ends at this moment.
    if FINALIZER not in job.finalizers:
        yield AddFinalizer(job=job.key)
    if found.is_stop_wanted:
        if found.is_unserved:  # Nobody is there to read it: see `needs_stop`.
            why = next(want.why for want in found.wants.values() if want.is_stop)
            yield StopJob(job=look.name, uid=job.uid, why=why)
        return
    spec = job.spec
    if spec is not None and spec.active_deadline_seconds is not None:
        ends_unix_s = found.spec.submitted_at_unix_s + spec.active_deadline_seconds
        if look.now_unix_s >= ends_unix_s:
            yield StopJob(job=look.name, uid=job.uid, why=DEADLINE_WHY)
            return
    if not job.wrong:
        # A policy that goes takes the autoscaler's size along: the object's own is written before.
        yield from decide_size(job, look.name, found, look.memory)
        yield from decide_policy(job, look.name, found, now_unix_s=look.now_unix_s)


def _standing(look: _Look, found: JobRecords) -> ElasticJobStatus:
    wrong = look.job.wrong or _changed(look.job, found)
    return status_of(look.job, look.name, found, wrong=wrong, now_unix_s=look.now_unix_s)


def _changed(job: ElasticJob, found: JobRecords) -> str:
    """Return what was changed that cannot be changed, if no server refused it."""
    changed = changed_fields(job, found.spec) if not found.is_over else ()
    if not changed:
        return ""
    return (
        f"{', '.join(changed)} cannot be changed while the job stands: change it back, or delete "
        "the object and create it anew."
    )


def _expire(look: _Look, status: ElasticJobStatus) -> Iterator[Action]:
    """Delete the object of a job that has been over for as long as it says."""
    spec = look.job.spec
    limit_s = spec.ttl_seconds_after_finished if spec is not None else None
    over_unix_s = unix_s(status.completion_time)
    if limit_s is None or over_unix_s is None:
        return
    if look.now_unix_s >= over_unix_s + limit_s:
        yield DeleteObject(job=look.job.key)


def _report(look: _Look, status: ElasticJobStatus) -> Iterator[Action]:
    """Write events about what has happened, and the status if it is due."""
    yield from _untold(look, status)
    before, memory = look.job.status, look.memory
    if status == before:
        return
    every_s = look.status_every_s
    since_s = look.now_s - memory.status_s if memory.status_s is not None else every_s
    is_unseen = memory.status_version == look.job.resource_version and since_s < UNSEEN_LIMIT_S
    if is_unseen or (is_same(status, before) and since_s < every_s):
        return
    yield ApplyStatus(job=look.job.key, status=status)


def _untold(look: _Look, status: ElasticJobStatus) -> Iterator[TellEvent]:
    for event in events(look.job, look.found, status, told_to=look.memory.generation):
        if look.memory.told.get(event.topic) != event.content:
            yield event


def _stop_orphans(seen: ObservedCluster) -> Iterator[Action]:
    """Stop jobs of this cluster's objects that are gone, as after a deletion by force."""
    if seen.records is None or not seen.identity:
        return
    for name, found in sorted(seen.records.jobs.items()):
        is_ours = found.spec.owner.startswith(owner_prefix(seen.identity))
        if is_ours and found.spec.uid not in seen.jobs and found.needs_stop:
            gone = job_of_owner(found.spec, seen.identity)
            yield StopJob(job=name, uid=found.spec.uid, why="its ElasticJob is gone", gone=gone)

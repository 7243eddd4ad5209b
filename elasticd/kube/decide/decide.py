"""The operator's one decision: takes the observed cluster and the time, returns the actions.

The function decides about each object, node and orphan separately, so that a fault of one does not
delay the others. Once the actions have taken effect, there is nothing left to do. Until their
effect is observed, the function may request them again; to repeat an action changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from elasticd.kube.decide.action import (
    Action,
    AddFinalizer,
    ApplyStatus,
    DeleteObject,
    RemoveFinalizer,
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
"""The least time in seconds between two writes of a status whose phase does not change."""
STATUSES_PER_S = 10.0
"""The limit for such writes of all jobs together, per second; it applies to more than a hundred
jobs."""
UNSEEN_LIMIT_S = 2.0
"""The time in seconds that the operator waits until an object shows a successful write."""
REVIVED_WHY = "it was over before etcd was restored from a backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One object, and the records that belong to it."""

    job: ElasticJob
    name: JobName
    found: JobRecords | None
    memory: ObjectMemory
    status_every_s: float
    now_s: float
    now_unix_s: float


def decide(seen: ObservedCluster, *, now_s: float, now_unix_s: float) -> tuple[Action, ...]:
    """Return the actions, in an order that is always the same.

    Args: seen: the observed cluster, at one moment. now_s: the time by the operator's own clock,
    which only goes forward. now_unix_s: the time by the wall clock, for the times that Kubernetes
    gives.
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
        actions = tuple(delete(look.job, look.name, look.found, seen))
        yield from actions
        # Perhaps only another controller's finalizer keeps it. Without ours it may be gone now, and
        # nothing can be written to it.
        is_kept = bool(look.job.finalizers)
        is_kept &= not any(isinstance(each, RemoveFinalizer) for each in actions)
        if look.found is not None and is_kept and not _is_revived(look, look.found):
            yield from _report(look, _standing(look, look.found))
    elif look.found is not None and _is_revived(look, look.found):
        # The status stays: a job that is over does not begin again.
        if look.found.needs_stop:
            yield _stop(look.name, look.found, REVIVED_WHY)
        yield from _expire(look, look.job.status)
    elif look.found is not None:
        yield from _follow(look, look.found)
    elif look.job.status.is_final:
        yield from _expire(look, look.job.status)
    elif look.job.status.job:
        # A job is submitted once: a job that runs twice does more harm than a job that does not
        # run.
        if seen.records is not None:
            yield from _report(look, lost_status(look.job, now_unix_s=look.now_unix_s))
    else:
        yield from _submit(look, seen)


def _is_revived(look: _Look, found: JobRecords) -> bool:
    """Return whether a job whose object says that it is over is active, or ended in another way:
    etcd was restored from a backup.
    """
    before = look.job.status
    return before.is_final and _standing(look, found).phase != before.phase


def _submit(look: _Look, seen: ObservedCluster) -> Iterator[Action]:
    """Submit the job, unless its object is wrong or etcd is away."""
    job, wrong = look.job, look.job.wrong
    if seen.records is None and not seen.is_etcd_away and not wrong:
        return  # The operator will know in a moment whether the job was submitted.
    reason = "EtcdAway" if seen.records is None else "NotSubmitted"
    message = "etcd does not answer." if seen.records is None else "It is about to be submitted."
    if look.memory.refusal:
        reason, message = "Refused", look.memory.refusal
    if seen.intruded:
        reason, message = "OtherCluster", seen.intruded
    status = unsubmitted_status(
        job, look.name, wrong=wrong, reason=reason, message=message, now_unix_s=look.now_unix_s
    )
    # A new object gets its first status together with its job: an earlier status would be out of
    # date in a moment, and many new objects wait for each write.
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
    """Return the job's name, or a special name if a job of another owner has that name.

    That owner may be a deleted object of this name (deleted by force), or another Kubernetes
    cluster on the same etcd. A job that is over is replaced.
    """
    assert seen.records is not None
    name = job_name(job)
    standing = seen.records.jobs.get(name)
    return job_name_apart(job) if standing is not None and standing.is_active else name


def _follow(look: _Look, found: JobRecords) -> Iterator[Action]:
    """Keep a job in etcd as its object asks, and the object's status as the job's records say."""
    job = look.job
    status = _standing(look, found)
    yield from _report(look, status)
    if found.is_over:
        yield from _expire(look, status)
        return
    if not found.is_active:
        return  # The job is ending now.
    if FINALIZER not in job.finalizers:
        yield AddFinalizer(job=job.key)
    if found.is_stop_wanted:
        if found.is_unserved:  # No node would read the want: see `needs_stop`.
            why = next(want.why for want in found.wants.values() if want.is_stop)
            yield _stop(look.name, found, why)
        return
    spec = job.spec
    if spec is not None and spec.active_deadline_seconds is not None:
        ends_unix_s = found.spec.submitted_at_unix_s + spec.active_deadline_seconds
        if look.now_unix_s >= ends_unix_s:
            yield _stop(look.name, found, DEADLINE_WHY)
            return
    if not job.wrong:
        # Without its policy, the job also loses the autoscaler's want: the object's own want is
        # written before.
        yield from decide_size(job, look.name, found, look.memory)
        yield from decide_policy(job, look.name, found, now_unix_s=look.now_unix_s)


def _standing(look: _Look, found: JobRecords) -> ElasticJobStatus:
    wrong = look.job.wrong or _changed(look.job, found)
    return status_of(look.job, look.name, found, wrong=wrong, now_unix_s=look.now_unix_s)


def _changed(job: ElasticJob, found: JobRecords) -> str:
    """Return which fixed fields were changed, as a sentence; older servers do not refuse it."""
    changed = changed_fields(job, found.spec) if not found.is_over else ()
    if not changed:
        return ""
    return (
        f"{', '.join(changed)} cannot be changed while the job stands: change it back, or delete "
        "the object and create it anew."
    )


def _expire(look: _Look, status: ElasticJobStatus) -> Iterator[Action]:
    """Delete the object of a finished job after the time that the object gives."""
    spec = look.job.spec
    limit_s = spec.ttl_seconds_after_finished if spec is not None else None
    over_unix_s = unix_s(status.completion_time)
    if limit_s is None or over_unix_s is None:
        return
    if look.now_unix_s >= over_unix_s + limit_s:
        yield DeleteObject(job=look.job.key)


def _report(look: _Look, status: ElasticJobStatus) -> Iterator[Action]:
    """Write events about new changes, and the status if it is due."""
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
    """Stop jobs of this cluster whose objects are gone, as after a deletion by force."""
    if seen.records is None or not seen.identity:
        return
    for name, found in sorted(seen.records.jobs.items()):
        is_ours = found.spec.owner.startswith(owner_prefix(seen.identity))
        if is_ours and found.spec.uid not in seen.jobs and found.needs_stop:
            gone = job_of_owner(found.spec, seen.identity)
            yield replace(_stop(name, found, "its ElasticJob is gone"), gone=gone)


def _stop(name: JobName, found: JobRecords, why: str) -> StopJob:
    return StopJob(job=name, uid=found.spec.uid, why=why, may_end=found.may_be_ended)

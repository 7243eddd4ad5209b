"""Removes the records of jobs that are over: by a command, or by the agents after a time.

A job that ends leaves a small key, `ended/<job>`, which counts the age of its records. An agent
that has seen the count unchanged for long enough, by its own clock, increments it. So no two hosts'
clocks are compared. The count goes on over restarts of the agents, and stops while no agent
watches: records stay at least as long as they should. Each transaction here succeeds only if no
other process changed the same key or submitted the job anew.

Removing records only deletes keys: a full etcd takes deletions, but no puts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from elasticd.errors import NotFound, NotSupported, Refused
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import EndedJob, JobStatus
from elasticd.records.keys import Keys
from elasticd.store.api import Delete, ModifiedAt, Put, ReadableStore, Store, Txn

__all__ = ["Counted", "Pruned", "count_up", "ended_jobs", "prune"]

KEYS_AT_ONCE = 5_000
"""The number of keys that one transaction deletes; etcd is busy with it for some hundredths of a
second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The records of one job that were removed, or that a real run would remove."""

    job: JobName
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The count of a job as an agent last saw it."""

    revision: int
    since_s: float
    """The time at which the agent first saw this count, by its own clock."""


def ended_jobs(store: ReadableStore, keys: Keys) -> Mapping[JobName, Sequence[str]]:
    """Return the keys of each job that is over and that no node serves any more."""
    active = {key.removeprefix(keys.active) for key in store.keys(keys.active)}
    by_job: dict[JobName, list[str]] = {}
    for key in store.keys(keys.jobs):
        by_job.setdefault(JobName(key.removeprefix(keys.jobs).split("/", 1)[0]), []).append(key)
    return {
        job: found
        for job, found in sorted(by_job.items())
        if job not in active and not any(key.startswith(keys.members(job)) for key in found)
    }


def prune(
    store: Store, keys: Keys, jobs: Sequence[JobName] = (), *, is_dry_run: bool = False
) -> Iterator[Pruned]:
    """Remove the records of these jobs, or of all jobs that are over; yield each removed job.

    Raises: NotFound: there is no such job. Refused: the job is not over.
    """
    ended = ended_jobs(store, keys)
    for job in jobs:
        if job not in ended:
            if not store.keys(keys.job(job)):
                raise NotFound(f"There is no job {job!r}: `elasticd status` lists all.")
            raise Refused(
                f"Job {job!r} is not over, or a node is still leaving it: end it with `elasticd "
                f"stop {job}` first."
            )
    for job in jobs or ended:
        if is_dry_run or _remove(store, keys, job, ended[job]):
            yield Pruned(job=job, records=len(ended[job]))


def count_up(
    store: Store,
    keys: Keys,
    seen: Mapping[JobName, Counted],
    *,
    keep_s: float,
    step_s: float,
    now_s: float,
) -> tuple[Mapping[JobName, Counted], tuple[JobName, ...]]:
    """Look at all counts once; return the counts, and the jobs whose records were removed for age.

    `keep_s` is the age at which records are removed, `step_s` the time between two increments;
    `now_s` is this agent's monotonic clock.
    """
    counted: dict[JobName, Counted] = {}
    removed: list[JobName] = []
    for item in store.list(keys.ended).items:
        job = JobName(item.key.removeprefix(keys.ended))
        try:
            record, before = decode(EndedJob, item.value), seen.get(job)
        except NotSupported:
            continue  # This job stays; the others are still handled.
        is_same = before is not None and before.revision == item.mod_revision
        counted[job] = Counted(revision=item.mod_revision, since_s=now_s)
        if before is None or not is_same:
            continue
        watched_s = now_s - before.since_s
        if record.kept_s + watched_s >= keep_s:
            with suppress(NotSupported):
                if _remove(store, keys, job, store.keys(keys.job(job)), item.mod_revision):
                    removed.append(job)
        elif watched_s >= step_s:
            put = Put(key=item.key, value=encode(EndedJob(kept_s=record.kept_s + watched_s)))
            same = ModifiedAt(key=item.key, revision=item.mod_revision)
            done = store.commit(Txn(when=(same,), then=(put,)))
            if done.succeeded:
                counted[job] = Counted(revision=done.revision, since_s=now_s)
        else:
            counted[job] = before
    return counted, tuple(removed)


def _remove(
    store: Store, keys: Keys, job: JobName, found: Sequence[str], revision: int | None = None
) -> bool:
    """Delete a job's records unless the job was submitted anew; `revision` is that of its count."""
    status = store.get(keys.status(job))
    if status is not None and not decode(JobStatus, status.value).phase.is_final:
        return False
    when: tuple[ModifiedAt, ...] = (
        ModifiedAt(key=keys.active_job(job), revision=0),
        ModifiedAt(key=keys.status(job), revision=status.mod_revision if status is not None else 0),
    )
    if revision is not None:
        when += (ModifiedAt(key=keys.ended_job(job), revision=revision),)
    incidents = sorted(key for key in found if key.startswith(keys.incidents(job)))
    for begin in range(0, len(incidents), KEYS_AT_ONCE):
        part = incidents[begin : begin + KEYS_AT_ONCE]
        delete = Delete(key=part[0], until=part[-1] + "\0")
        if not store.commit(Txn(when=when, then=(delete,))).succeeded:
            return False
    rest = (Delete(key=keys.job(job), is_prefix=True), Delete(key=keys.ended_job(job)))
    return store.commit(Txn(when=when, then=rest)).succeeded

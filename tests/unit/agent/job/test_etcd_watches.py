"""What the watches of a job tell the core, and that they can be begun anew."""

from dataclasses import replace

from elasticd.control import job_submission
from elasticd.records.codec import encode
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase
from elasticd.rendezvous import event as ev
from elasticd.store.api import Delete, Put, Txn
from elasticd.store.memory import MemoryStore
from elasticd_agent.job.etcd_watches import JobWatches

KEYS = Keys()
JOB = JobName("job")
SPEC = JobSpec(name=JOB, uid="one", entry_kind=EntryKind.SCRIPT, entry="t.py")


def statuses(told: list[ev.Event]) -> list[JobStatus | None]:
    return [event.status for event in told if isinstance(event, ev.StatusSeen)]


def test_status_that_a_watch_missed_is_told_when_it_is_read_again() -> None:
    """etcd has lost events of watches that stayed open; this one was the job's last."""
    store, told = MemoryStore(), list[ev.Event]()
    job_submission.submit(store, KEYS, SPEC)
    watches = JobWatches(store, KEYS, JOB, told.append)
    watches.reread()
    assert [status.uid for status in statuses(told) if status is not None] == ["one"]
    store.drop_watches()
    final = JobStatus(phase=Phase.SUCCEEDED, uid="one")
    store.commit(Txn(then=(Put(key=KEYS.status(JOB), value=encode(final)),)))
    told.clear()
    watches.reread()
    store.resume_watches()
    assert statuses(told) == [final]
    watches.close()


def test_records_that_were_cleared_away_are_told_of() -> None:
    """By the change, or by a list that shows none; the next job of the name is told after it."""
    store, told = MemoryStore(), list[ev.Event]()
    job_submission.submit(store, KEYS, SPEC)
    watches = JobWatches(store, KEYS, JOB, told.append)
    watches.reread()
    store.commit(Txn(then=(Delete(key=KEYS.job(JOB), is_prefix=True),)))
    assert statuses(told)[1:] == [None]
    told.clear()
    watches.reread()
    assert statuses(told) == [None]
    store.commit(Txn(then=(Delete(key=KEYS.active_job(JOB)),)))
    told.clear()
    job_submission.submit(store, KEYS, replace(SPEC, uid="two"))
    assert [status and status.uid for status in statuses(told)] == ["two"]
    watches.close()

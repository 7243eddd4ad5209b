"""A daemon looks after the records of jobs that ended, again and again."""

from collections.abc import Callable

from elasticd.records.codec import encode
from elasticd.records.ids import JobName
from elasticd.records.job import EndedJob, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore
from elasticd_agent.node.ended_jobs import EndedJobs
from tests.unit.agent.job.test_etcd_effects import PromptEffects

JOB = JobName("train")
KEYS = Keys()


class Daemon:
    """With a clock that moves when it waits."""

    def __init__(self, store: MemoryStore, keep_s: float) -> None:
        self.now_s = 0.0
        self.waiting: list[Callable[[], object]] = []
        self.jobs = EndedJobs(
            store, KEYS, PromptEffects(), keep_s, after=self._after, clock=lambda: self.now_s
        )

    def _after(self, pause_s: float, call: Callable[[], object]) -> None:
        self.now_s += pause_s
        self.waiting.append(call)

    def wait(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.waiting and self.now_s < until_s:
            self.waiting.pop()()


def _store() -> MemoryStore:
    store = MemoryStore()
    status = JobStatus(phase=Phase.FAILED)
    puts = (
        Put(key=KEYS.status(JOB), value=encode(status)),
        Put(key=KEYS.ended_job(JOB), value=encode(EndedJob())),
    )
    store.commit(Txn(then=puts))
    return store


def test_records_of_an_ended_job_go_after_the_time_that_they_are_kept() -> None:
    """Also over an etcd that is away for a while."""
    store = _store()
    daemon = Daemon(store, keep_s=7 * 86400.0)
    daemon.jobs.open()
    daemon.wait(3 * 86400.0)
    assert store.keys(KEYS.job(JOB))
    store.go_away()
    daemon.wait(86400.0)
    store.come_back()
    daemon.wait(5 * 86400.0)
    assert not store.keys(KEYS.job(JOB))


def test_with_nothing_to_keep_for_nobody_looks() -> None:
    """`--keep-ended 0` keeps for ever."""
    daemon = Daemon(_store(), keep_s=0.0)
    daemon.jobs.open()
    assert not daemon.waiting


def test_nobody_looks_after_the_end() -> None:
    """The connection is closed by then."""
    store = _store()
    daemon = Daemon(store, keep_s=100.0)
    daemon.jobs.open()
    daemon.jobs.close()
    daemon.wait(1e6)
    assert store.keys(KEYS.job(JOB)) and not daemon.waiting

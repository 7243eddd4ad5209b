"""Records of jobs that are over are removed, and no others."""

from collections.abc import Mapping

import pytest

from elasticd.control.job_submission import submit
from elasticd.control.prune import KEYS_AT_ONCE, Counted, Pruned, count_up, prune
from elasticd.errors import NotFound, Refused
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation, JobName, NodeId
from elasticd.records.job import Active, EndedJob, EntryKind, JobSpec, JobStatus
from elasticd.records.reason import Phase
from elasticd.store.api import Put, Txn, TxnResult
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import KEYS, put

DAY_S = 86400.0
OLD, NEW = JobName("old"), JobName("new")


def ended(store: MemoryStore, job: JobName, incidents: int = 3) -> None:
    """A job that is over, as its agents leave it."""
    put(store, KEYS.spec(job), spec(job))
    put(store, KEYS.status(job), JobStatus(phase=Phase.SUCCEEDED))
    put(store, KEYS.ended_job(job), EndedJob())
    for generation in range(incidents):
        key = KEYS.incident(job, Generation(generation), NodeId("a"))
        put(store, key, JobStatus())


def running(store: MemoryStore, job: JobName) -> None:
    put(store, KEYS.spec(job), spec(job))
    put(store, KEYS.status(job), JobStatus(phase=Phase.RUNNING))
    put(store, KEYS.active_job(job), Active(uid="u", is_ready=True))


def spec(job: JobName) -> JobSpec:
    return JobSpec(name=job, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")


def test_what_is_over_is_removed_and_what_runs_stays() -> None:
    """A job whose name begins with another's, too."""
    store = MemoryStore()
    ended(store, OLD)
    running(store, NEW)
    running(store, JobName("old-2"))
    before = set(store.keys(KEYS.root))
    assert list(prune(store, KEYS, is_dry_run=True)) == [Pruned(job=OLD, records=5)]
    assert set(store.keys(KEYS.root)) == before
    assert list(prune(store, KEYS)) == [Pruned(job=OLD, records=5)]
    gone = before - set(store.keys(KEYS.root))
    assert gone == {k for k in before if k.startswith(KEYS.job(OLD))} | {KEYS.ended_job(OLD)}
    assert list(prune(store, KEYS)) == []


def test_only_the_jobs_that_are_named_are_removed() -> None:
    """And a wrong name removes nothing of the others."""
    store = MemoryStore()
    ended(store, OLD)
    ended(store, NEW)
    with pytest.raises(NotFound, match="no job 'odl'"):
        list(prune(store, KEYS, [OLD, JobName("odl")]))
    assert [done.job for done in prune(store, KEYS, [OLD])] == [OLD]
    assert store.keys(KEYS.job(NEW))


def test_a_job_that_runs_or_is_still_being_left_is_refused() -> None:
    """Its last agent would write its goodbye into nothing."""
    store = MemoryStore()
    running(store, NEW)
    ended(store, OLD)
    put(store, KEYS.member(OLD, NodeId("a")), JobStatus())
    for job in (NEW, OLD):
        with pytest.raises(Refused, match="not over, or a node is still leaving"):
            list(prune(store, KEYS, [job]))
    assert list(prune(store, KEYS)) == []


def test_a_great_many_records_go_in_pieces() -> None:
    """One transaction of a million deletions would stop etcd for everybody."""
    store = _CountingStore()
    ended(store, OLD)
    puts = tuple(
        Put(key=KEYS.incident(OLD, Generation(g), NodeId("b")), value=b"{}")
        for g in range(2 * KEYS_AT_ONCE)
    )
    store.commit(Txn(then=puts))
    list(prune(store, KEYS))
    assert not store.keys(KEYS.job(OLD))
    assert max(store.deleted) <= KEYS_AT_ONCE


class _CountingStore(MemoryStore):
    """Counts how many keys each transaction deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[int] = []

    def commit(self, txn: Txn) -> TxnResult:
        before = len(self.keys(""))
        result = super().commit(txn)
        self.deleted.append(before - len(self.keys("")))
        return result


def test_what_is_only_deleted_goes_from_a_full_etcd_too() -> None:
    """It takes no puts while the alarm stands."""
    store = _FullStore()
    ended(store, OLD)
    store.is_full = True
    assert [done.job for done in prune(store, KEYS)] == [OLD]


class _FullStore(MemoryStore):
    is_full = False

    def commit(self, txn: Txn) -> TxnResult:
        if self.is_full and any(isinstance(op, Put) for op in (*txn.then, *txn.otherwise)):
            raise Refused("etcd is full.")
        return super().commit(txn)


class Agents:
    """Some agents that look at the counts, each with a clock of its own."""

    def __init__(self, store: MemoryStore, *boots_s: float, keep_s: float = 7 * DAY_S) -> None:
        self.store, self.keep_s = store, keep_s
        self.clocks = list(boots_s)
        self.seen: list[Mapping[JobName, Counted]] = [{} for _ in boots_s]

    def look(self, agent: int, after_s: float = 0.0) -> tuple[JobName, ...]:
        self.clocks = [now_s + after_s for now_s in self.clocks]
        self.seen[agent], removed = count_up(
            self.store,
            KEYS,
            self.seen[agent],
            keep_s=self.keep_s,
            step_s=3600.0,
            now_s=self.clocks[agent],
        )
        return removed

    def restart(self, agent: int) -> None:
        self.seen[agent], self.clocks[agent] = {}, 3.0

    def kept_s(self) -> float:
        item = self.store.get(KEYS.ended_job(OLD))
        assert item is not None
        return decode(EndedJob, item.value).kept_s


def test_records_go_when_they_have_been_watched_for_long_enough() -> None:
    """Whatever the agents' clocks show, and over their restarts; never sooner."""
    store = MemoryStore()
    ended(store, OLD)
    running(store, NEW)
    agents, passed_s = Agents(store, 5e6, 17.0, 9e9), 0.0
    for look in range(3 * 24 * 9):
        if look % 50 == 49:
            agents.restart(look % 3)
        removed = agents.look(look % 3, after_s=1200.0)
        passed_s += 1200.0
        if removed:
            break
        assert agents.kept_s() <= passed_s
    else:
        pytest.fail("never removed")
    assert removed == (OLD,) and 7 * DAY_S <= passed_s <= 8 * DAY_S
    assert not store.keys(KEYS.job(OLD)) and store.get(KEYS.ended_job(OLD)) is None
    assert store.keys(KEYS.job(NEW))


def test_time_that_nobody_watched_does_not_count() -> None:
    """An agent knows only what it saw itself; all were away over the holidays."""
    store = MemoryStore()
    ended(store, OLD)
    agents = Agents(store, 0.0)
    agents.look(0)
    agents.restart(0)
    assert agents.look(0, after_s=100 * DAY_S) == ()
    assert agents.kept_s() == 0.0


def test_two_agents_do_not_count_the_same_hour_twice() -> None:
    """Whoever is second finds the count changed, and begins anew."""
    store = MemoryStore()
    ended(store, OLD)
    agents = Agents(store, 0.0, 1000.0)
    agents.look(0)
    agents.look(1)
    agents.look(0, after_s=4000.0)
    agents.look(1)
    assert agents.kept_s() == 4000.0


def test_a_job_that_is_submitted_anew_is_not_touched() -> None:
    """Neither by who was about to remove the one before, nor by its old count."""
    store = MemoryStore()
    ended(store, OLD)
    agents = Agents(store, 0.0)
    agents.look(0)
    submit(store, KEYS, spec(OLD))
    assert store.get(KEYS.ended_job(OLD)) is None
    assert agents.look(0, after_s=8 * DAY_S) == ()
    put(store, KEYS.ended_job(OLD), EndedJob(kept_s=8 * DAY_S))
    agents.look(0)
    assert agents.look(0, after_s=1.0) == ()
    assert store.keys(KEYS.job(OLD))
    assert encode(spec(OLD)) == store.list(KEYS.spec(OLD)).items[0].value


def test_a_record_that_cannot_be_read_keeps_no_other_job() -> None:
    """It is left alone: a newer version, or a person, knows what it is."""
    store = MemoryStore()
    for name in ("bad-count", "bad-status", "old"):
        ended(store, JobName(name))
    for key in (KEYS.ended_job(JobName("bad-count")), KEYS.status(JobName("bad-status"))):
        store.commit(Txn(then=(Put(key=key, value=b"{"),)))
    seen: Mapping[JobName, Counted] = {}
    for now_s in (0.0, DAY_S):
        seen, removed = count_up(store, KEYS, seen, keep_s=DAY_S, step_s=3600.0, now_s=now_s)
    assert removed == (OLD,)
    assert store.keys(KEYS.job(JobName("bad-count"))) and store.keys(
        KEYS.job(JobName("bad-status"))
    )

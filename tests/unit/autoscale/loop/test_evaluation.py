"""What a leader reads and writes of jobs, with a decision of the test's choice."""

import math
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.loop import evaluation
from elasticd.autoscale.metrics_source import Query
from elasticd.autoscale.prometheus.client import PrometheusClient
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.control.job_policy import unset_policy
from elasticd.errors import Unavailable
from elasticd.records.autoscale.decision import DECISIONS_LIMIT, Decision, Rule
from elasticd.records.autoscale.memory import Memory, Proposed
from elasticd.records.autoscale.policy import POLICY_SCHEMA, Policy
from elasticd.records.codec import decode
from elasticd.records.job import JobSpec
from elasticd.store.api import KeyValue, Put, Txn, WatchSnapshot
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaler_scene import POLICY, Cluster, Deciding, FakeSource, Leader, Ticks
from tests.fixtures.scripted_prometheus import scripted_prometheus
from tests.fixtures.store import wait_until


def running(cluster: Cluster, *nodes: str, name: str = "j", policy: Policy | None = POLICY):  # type: ignore[no-untyped-def]
    job = cluster.job(name).submit(policy)
    job.run(*(nodes or ("a",)))
    return job


def test_a_decision_its_wish_and_the_memory_stand_together() -> None:
    """With who wishes it, why and since when."""
    cluster = Cluster()
    job = running(cluster)
    leader = Leader(cluster, Deciding(3))
    leader.evaluate()
    assert job.wanted == 3
    (decision,) = job.decisions
    assert (decision.from_nodes, decision.to_nodes, decision.number) == (1, 3, 1)
    memory = job.memory
    assert memory is not None and (memory.wanted, memory.decisions) == (3, 1)
    keys = (
        cluster.keys.want(job.name, "autoscaler"),
        cluster.keys.decision(job.name, 1),
        cluster.keys.autoscaler_memory(job.name),
    )
    items = [cluster.store.get(key) for key in keys]
    assert len({item.mod_revision for item in items if item is not None}) == 1
    want = items[0]
    assert want is not None and b"3 are enough." in want.value and b"since_unix_s" in want.value


def test_jobs_without_a_policy_are_left_alone() -> None:
    """Nothing is asked, decided or written for them."""
    cluster = Cluster()
    job = running(cluster, policy=None)
    deciding = Deciding(3)
    leader = Leader(cluster, deciding)
    leader.evaluate()
    assert (deciding.seen, leader.source.asked, job.wanted, job.memory) == ([], [], None, None)


def test_a_policy_of_an_ended_job_of_that_name_counts_for_nothing() -> None:
    """A policy belongs to one job, by its uid."""
    cluster = Cluster()
    job = running(cluster, policy=None)
    job.put(cluster.keys.policy(job.name), replace(POLICY, uid="another"))
    deciding = Deciding(3)
    Leader(cluster, deciding).evaluate()
    assert deciding.seen == []


def test_a_leader_that_was_deposed_writes_nothing() -> None:
    """Its lease ran out while it stood still; it goes on before it has heard of it."""
    store = MemoryStore()
    cluster = Cluster(store)
    job = running(cluster)
    before = Leader(cluster, Deciding(3))
    store.expire(before.term.lease.id)
    after = Leader(cluster, Deciding(2))
    after.evaluate()
    before.term.is_over = False  # It has not been told.
    before.evaluation._clocks = replace(before.evaluation._clocks, lease_s=lambda: 0.0)
    before.evaluate()
    assert job.wanted == 2 and len(job.decisions) == 1


def test_a_leader_past_its_deadline_does_not_even_try() -> None:
    """By its own clock, whatever etcd would say."""
    clock = Ticks()
    cluster = Cluster(MemoryStore(now_s=clock))
    job = running(cluster)
    leader = Leader(cluster, Deciding(3), lease_s=clock)
    leader.evaluation._clocks = replace(leader.evaluation._clocks, lease_s=lambda: clock.s + 11.0)
    leader.evaluate()
    assert job.wanted is None


def test_a_job_that_ended_and_came_back_is_another_one() -> None:
    """What was decided about the first one is not written for the second."""
    cluster = Cluster()
    job = running(cluster)
    deciding = Deciding(3)
    leader = Leader(cluster, deciding)
    leader.evaluate()
    job.end()
    leader.evaluate()
    assert len(deciding.seen) == 1
    again = cluster.job(uid="v").submit()
    again.run("a")
    leader.evaluate()
    assert deciding.memories[-1].uid == "v" and deciding.memories[-1].wanted == 0


class EndsWhileDeciding(Deciding):
    def __init__(self, act) -> None:  # type: ignore[no-untyped-def]
        super().__init__(3)
        self.act = act

    def __call__(self, *given):  # type: ignore[no-untyped-def]
        self.act()
        return super().__call__(*given)


def test_nothing_is_written_for_a_job_that_ended_meanwhile() -> None:
    """A wish would outlive it, and count for the next job of that name."""
    cluster = Cluster()
    job = running(cluster)
    Leader(cluster, EndsWhileDeciding(job.end)).evaluate()
    assert (job.wanted, job.memory, job.decisions) == (None, None, [])


def test_nothing_is_written_by_a_policy_that_was_changed_meanwhile() -> None:
    """Nor by one that was taken back: its wish would stand for ever."""
    cluster = Cluster()
    job = running(cluster)
    newer = replace(POLICY, set_at_unix_s=2.0)
    leader = Leader(cluster, EndsWhileDeciding(lambda: job.set(newer)))
    leader.evaluate()
    assert (job.wanted, job.memory, job.decisions) == (None, None, [])


def test_what_is_being_measured_outlives_a_write_that_was_refused() -> None:
    """A policy that changes costs no window; what stands in etcd is read anew."""
    cluster = Cluster()
    job = running(cluster)
    job.tell("a", step=1)
    job.progress(100, 10.0)
    newer = replace(POLICY, set_at_unix_s=2.0)
    deciding = EndsWhileDeciding(lambda: job.set(newer))
    leader = Leader(cluster, deciding)
    leader.evaluate()
    deciding.act = lambda: None
    job.progress(1000, 110.0)
    leader.evaluate()
    assert deciding.seen[-1].has_full_window and job.wanted == 3
    assert [each.number for each in job.decisions] == [1]


def test_the_next_leader_goes_on_from_the_records() -> None:
    """As if no time had gone by: all times are moved to its own clock."""
    cluster = Cluster()
    job = running(cluster)
    Leader(cluster, Deciding(3), now_s=Ticks(5000.0)).kill()
    before = Leader(cluster, first := Deciding(3), now_s=Ticks(5000.0))
    before.evaluate()
    before.evaluate()
    assert first.open[0] is None and first.open[1] is not None
    memory = job.memory
    assert memory is not None and memory.now_s == 5000.0
    job.put(
        cluster.keys.autoscaler_memory(job.name),
        replace(memory, proposed=(Proposed(at_s=4990.0, nodes=3),)),
    )
    before.kill()
    after = Leader(cluster, second := Deciding(3), now_s=Ticks(70.0))
    after.evaluate()
    taken = second.memories[0]
    assert (taken.wanted, taken.decisions, taken.now_s) == (3, 1, 70.0)
    assert taken.proposed == (Proposed(at_s=60.0, nodes=3),)
    assert second.open[0] == job.decisions[0]


@pytest.mark.parametrize(("ago_s", "is_known"), [(80.0, True), (3600.0, False), (-3600.0, False)])
def test_who_leads_after_an_hour_without_any_leader_waits_for_whole_windows(
    ago_s: float, is_known: bool
) -> None:
    """Nobody has seen whether the metrics were there meanwhile; the rest of the memory holds."""
    cluster = Cluster()
    job = running(cluster)
    memory = Memory(
        uid=job.uid,
        now_s=5000.0,
        at_unix_s=time.time() - ago_s,
        wanted=2,
        whole_since_s={"speed": 4000.0},
    )
    job.put(cluster.keys.autoscaler_memory(job.name), memory)
    Leader(cluster, deciding := Deciding(), now_s=Ticks(70.0)).evaluate()
    taken = deciding.memories[0]
    assert (taken.wanted, taken.whole_since_s) == (2, {"speed": -930.0} if is_known else {})


def test_memory_is_written_when_it_matters_or_once_a_minute() -> None:
    """etcd has better things to do than to keep a time that moves."""
    cluster = Cluster()
    job = running(cluster)
    clock = Ticks()
    deciding = Deciding(held="pinned")
    leader = Leader(cluster, deciding, now_s=clock)

    def revision() -> int:
        item = cluster.store.get(cluster.keys.autoscaler_memory(job.name))
        assert item is not None
        return item.mod_revision

    leader.evaluate()
    first = revision()
    clock.s += 15.0
    leader.evaluate()
    assert revision() == first
    deciding.held = ""
    leader.evaluate()
    second = revision()
    assert second > first
    clock.s += 61.0
    leader.evaluate()
    assert revision() == second  # Nothing of it has changed at all.
    leader.evaluation._books[job.name].memory = replace(
        leader.evaluation._books[job.name].memory, held_since_s=7.0
    )
    leader.evaluate()
    assert revision() > second


def test_memories_of_many_jobs_are_not_all_written_at_once() -> None:
    """They are evaluated together, and each has its own moment of the minute."""
    cluster = Cluster()
    jobs = [running(cluster, name=f"j{number}") for number in range(40)]
    clock, deciding = Ticks(), Deciding(held="pinned")
    leader = Leader(cluster, deciding, now_s=clock)
    leader.evaluate()

    def written() -> set[str]:
        """Return the jobs whose memory was written in the evaluation of now."""
        memories = [(job.name, job.memory) for job in jobs]
        return {name for name, memory in memories if memory and memory.now_s == clock.s}

    assert len(written()) == 40
    found = []
    for _ in range(4):
        clock.s += 15.0
        for book in leader.evaluation._books.values():
            book.memory = replace(book.memory, held_since_s=clock.s)
        leader.evaluate()
        found.append(written())
    assert max(len(names) for names in found) <= 20
    assert set.union(*found) == {job.name for job in jobs}


def test_old_decisions_make_room() -> None:
    """A job keeps the newest ones, however long it lives."""
    cluster = Cluster()
    job = running(cluster)
    for number in range(1, DECISIONS_LIMIT + 1):
        old = Decision(number=number, rule=Rule.TARGET, from_nodes=1, to_nodes=2, why="So.")
        job.put(cluster.keys.decision(job.name, number), old)
    memory = Memory(uid="u", decisions=DECISIONS_LIMIT)
    job.put(cluster.keys.autoscaler_memory(job.name), memory)
    Leader(cluster, Deciding(3)).evaluate()
    assert [each.number for each in job.decisions] == list(range(2, DECISIONS_LIMIT + 2))


def test_a_policy_that_is_set_again_counts_its_decisions_on() -> None:
    """Taking it back deletes the memory, and leaves the decisions for whoever wants to see them."""
    cluster = Cluster()
    job = running(cluster)
    leader = Leader(cluster, Deciding(3))
    leader.evaluate()
    spec = cluster.store.get(cluster.keys.spec(job.name))
    assert spec is not None
    unset_policy(cluster.store, cluster.keys, decode(JobSpec, spec.value))
    leader.evaluate()
    assert (job.wanted, job.memory) == (None, None)
    job.set(POLICY)
    leader.evaluate()
    assert [each.number for each in job.decisions] == [1, 2] and job.wanted == 3


def test_etcd_that_goes_away_stops_all_and_the_book_is_read_again() -> None:
    """Nobody knows whether the last write was made: the records say."""
    store = MemoryStore()
    cluster = Cluster(store)
    job = running(cluster)
    deciding = EndsWhileDeciding(store.go_away)
    leader = Leader(cluster, deciding)
    with pytest.raises(Unavailable):
        leader.evaluate()
    store.come_back()
    deciding.act = lambda: None
    leader.evaluate()
    assert job.wanted == 3 and len(job.decisions) == 1


def test_a_bug_in_one_jobs_numbers_stops_no_other_job() -> None:
    """It is counted and logged; the others are sized."""
    cluster = Cluster()
    bad, good = running(cluster, name="bad"), running(cluster, "b", name="good")
    deciding = Deciding(3)

    def decide(policy, curve, memory, opened, seen):  # type: ignore[no-untyped-def]
        if seen.job == "bad":
            raise ZeroDivisionError
        return deciding(policy, curve, memory, opened, seen)

    leader = Leader(cluster, decide)
    leader.evaluate()
    assert (bad.wanted, good.wanted) == (None, 3)
    assert b'elasticd_autoscaler_held_total{why="other"} 1' in leader.counts.exposition()


def test_a_policy_that_no_file_could_be_stops_no_other_job() -> None:
    """Somebody else wrote it into etcd: its queries cannot even be asked."""
    cluster = Cluster()
    running(cluster, name="a", policy=replace(POLICY, window_s=math.inf))
    good = running(cluster, name="b")
    leader = Leader(cluster, Deciding(3))
    leader.evaluate()
    assert good.wanted == 3
    assert [query.job for query in leader.source.asked[-1]] == ["b"]


def test_a_memory_of_a_newer_elasticd_is_not_overwritten() -> None:
    """Nothing is decided about that job until this one is upgraded; others are sized."""
    cluster = Cluster()
    newer, good = running(cluster, name="a"), running(cluster, "b", name="b")
    key = cluster.keys.autoscaler_memory(newer.name)
    value = b'{"kind":"Memory","schema":"2.0"}'
    cluster.store.commit(Txn(then=(Put(key=key, value=value),)))
    leader = Leader(cluster, Deciding(3))
    leader.evaluate()
    item = cluster.store.get(key)
    assert item is not None and item.value == value
    assert (newer.wanted, good.wanted) == (None, 3)


def test_a_policy_of_a_newer_elasticd_is_left_alone() -> None:
    """It may have rules that this one does not know: a size without them could be any."""
    cluster = Cluster()
    newer = running(cluster, name="a", policy=replace(POLICY, version=POLICY_SCHEMA + 1))
    good = running(cluster, "b", name="b")
    leader = Leader(cluster, Deciding(3))
    leader.evaluate()
    assert (newer.wanted, newer.memory, good.wanted) == (None, None, 3)


def test_the_source_is_asked_once_for_all_jobs() -> None:
    """With the job's name and the window in each query; each job gets its own answers."""
    cluster = Cluster()
    running(cluster, name="one")
    running(cluster, "b", name="two", policy=replace(POLICY, window_s=90.0))
    source = FakeSource({"speed": QueryReading(value=7.0)})
    deciding = Deciding()
    Leader(cluster, deciding, source=source).evaluate()
    (asked,) = source.asked
    assert [query.text for query in asked] == [
        'rate(x{job="one"}[1m])',
        'rate(x{job="two"}[1m30s])',
    ]
    assert [seen.readings["speed"].value for seen in deciding.seen] == [7.0, 7.0]


class CountsReads(MemoryStore):
    reads = 0

    def get(self, key: str) -> KeyValue | None:
        self.reads += 1
        return super().get(key)

    def list(self, prefix: str) -> WatchSnapshot:
        self.reads += 1
        return super().list(prefix)


def test_a_hundred_jobs_are_evaluated_without_reading_the_cluster_again() -> None:
    """Only what has changed is read; the time for it stands in docs/benchmarks.md."""
    store = CountsReads()
    cluster = Cluster(store)
    for number in range(100):
        running(cluster, *(f"n{number}-{i}" for i in range(4)), name=f"j{number}")
    leader = Leader(cluster, Deciding())
    leader.evaluate()
    store.reads = 0
    leader.evaluate()
    assert store.reads == 0


def test_a_query_that_hangs_delays_no_other_job() -> None:
    """A server holds one job's request back: the others are decided about before it answers."""
    with scripted_prometheus() as script:
        script.values = {'rate(x{job="fast"}[1m])': ["5"], 'rate(x{job="hung"}[1m])': ["5"]}
        script.slow = {'rate(x{job="hung"}[1m])'}
        cluster = Cluster()
        fast, hung = running(cluster, name="fast"), running(cluster, name="hung")
        settings = PrometheusSettings(url=script.url, timeout_s=60.0)
        with closing(PrometheusClient(settings)) as client:
            leader = Leader(cluster, Deciding(3), source=client)  # type: ignore[arg-type]
            thread = threading.Thread(target=leader.evaluate, daemon=True)
            thread.start()
            wait_until(lambda: fast.wanted == 3)
            assert (hung.wanted, thread.is_alive()) == (None, True)
            script.is_over.set()
            wait_until(lambda: hung.wanted == 3)
            thread.join()


class InParts(FakeSource):
    """Answers one query after the other; in between something happens."""

    def __init__(self, *acts: Callable[[], None]) -> None:
        super().__init__({"speed": QueryReading(value=5.0)})
        self.acts = acts

    def readings(
        self, queries: Sequence[Query]
    ) -> Generator[Mapping[Query, QueryReading], None, None]:
        for query, act in zip(queries, self.acts, strict=True):
            act()
            yield self.read([query])


def test_a_reading_that_comes_late_meets_records_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was asked for another policy, or a job that is over, or a world that is another by now."""
    monkeypatch.setattr(evaluation, "FRESH_S", 0.0)
    cluster = Cluster()
    jobs = {name: running(cluster, name=name) for name in ("a", "b", "c", "d")}
    source = InParts(
        lambda: None,
        lambda: jobs["b"].run("a", "b"),
        lambda: jobs["c"].set(replace(POLICY, set_at_unix_s=2.0)),
        jobs["d"].end,
    )
    deciding = Deciding(3)
    leader = Leader(cluster, deciding, source=source)
    leader.evaluate()
    assert {seen.job: seen.nodes for seen in deciding.seen} == {"a": 1, "b": 2}
    leader.evaluation._source = FakeSource({"speed": QueryReading(value=5.0)})
    leader.evaluate()
    assert [seen.job for seen in deciding.seen[2:]] == ["a", "b", "c"]

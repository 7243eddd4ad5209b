"""How a job gets its name and its first records, on a store in memory."""

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest

from elasticd.control import job_submission, jobs
from elasticd.errors import CallError, NotSupported, Refused
from elasticd.records.codec import decode
from elasticd.records.ids import JobName
from elasticd.records.job import Active, JobStatus
from elasticd.records.member import Member
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.control.job_case import JOB, KEYS, NODE, SPEC, active, end, put


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    opened = MemoryStore()
    yield opened
    opened.close()


def test_a_submitted_job_stands_pending_and_ready(store: MemoryStore) -> None:
    """What agents need to begin is written in one transaction."""
    job_submission.submit(store, KEYS, SPEC)
    assert active(store) == Active(uid="one", is_ready=True)
    assert jobs.find_spec(store, KEYS, JOB) == SPEC
    item = store.get(KEYS.status(JOB))
    assert item is not None and decode(JobStatus, item.value).phase is Phase.PENDING


def test_a_name_in_use_is_refused_and_the_running_job_untouched(store: MemoryStore) -> None:
    """The message says what to do."""
    job_submission.submit(store, KEYS, SPEC)
    with pytest.raises(Refused, match="choose another --job"):
        job_submission.submit(store, KEYS, replace(SPEC, uid="two"))
    assert jobs.find_spec(store, KEYS, JOB).uid == "one"


def test_an_ended_jobs_name_is_free_and_its_records_are_cleared(store: MemoryStore) -> None:
    """A new job of the name begins without the old one's world, wants and incidents."""
    job_submission.submit(store, KEYS, SPEC)
    jobs.scale(store, KEYS, JOB, 2)
    end(store)
    job_submission.submit(store, KEYS, replace(SPEC, uid="two"))
    left = {item.key.removeprefix(KEYS.job(JOB)) for item in store.list(KEYS.job(JOB)).items}
    assert left == {"spec", "status"}
    assert jobs.find_spec(store, KEYS, JOB).uid == "two"


def serve(store: MemoryStore) -> None:
    """What a node has written that still ends the job's workers."""
    member = Member(
        node=NODE.node, incarnation=NODE.incarnation, host="h", address="a", port=1, slots=()
    )
    put(store, KEYS.member(JOB, NODE.node), member)


def leave(store: MemoryStore) -> None:
    store.commit(Txn(then=(Delete(key=KEYS.member(JOB, NODE.node)),)))


def test_name_is_not_free_while_a_node_still_saves(store: MemoryStore) -> None:
    """The new job would run beside the old one's workers, and end what they save."""
    job_submission.submit(store, KEYS, SPEC)
    end(store, Phase.STOPPED)
    serve(store)
    before = {item.key: item.value for item in store.list("").items}
    with pytest.raises(Refused, match="'digits' has just ended, and gpu-1 still ends its workers"):
        job_submission.submit(store, KEYS, replace(SPEC, uid="two"))
    assert {item.key: item.value for item in store.list("").items} == before
    leave(store)
    job_submission.submit(store, KEYS, replace(SPEC, uid="two"))
    assert active(store) == Active(uid="two", is_ready=True)


def test_end_of_a_jobs_workers_is_waited_for_and_that_of_a_running_job_is_not(
    store: MemoryStore,
) -> None:
    """`elasticd stop j --wait && elasticd run --job j` works; Ctrl-C ends the wait."""
    job_submission.submit(store, KEYS, SPEC)
    serve(store)
    told: list[str] = []

    def wait(*, is_given_up: bool = False) -> None:
        job_submission.wait_ended(
            store,
            KEYS,
            JOB,
            on_wait=told.append,
            is_given_up=lambda: is_given_up,
            pause=lambda _: leave(store),
        )

    wait()
    assert not told and store.get(KEYS.member(JOB, NODE.node)) is not None
    end(store, Phase.STOPPED)
    wait(is_given_up=True)
    assert store.get(KEYS.member(JOB, NODE.node)) is not None
    wait()
    assert store.get(KEYS.member(JOB, NODE.node)) is None
    assert told == [f"job {JOB} has just ended: waiting for its workers to end, and to save"] * 2


def test_joining_gives_the_workers_of_the_job_before_the_time_that_it_gave_them(
    store: MemoryStore,
) -> None:
    """The limit for another host's submission is shorter than a save may take."""
    local = replace(SPEC, is_local=True)
    job_submission.submit(store, KEYS, local)
    end(store, Phase.STOPPED)
    serve(store)
    waited_s = 0.0

    def pause(seconds: float) -> None:
        nonlocal waited_s
        waited_s += seconds
        if waited_s >= local.shutdown_timeout_s:
            leave(store)

    joined = job_submission.submit_or_join(store, KEYS, replace(local, uid="two"), pause=pause)
    assert joined.uid == "two"


def test_spec_that_no_record_holds_costs_an_ended_job_nothing(store: MemoryStore) -> None:
    """Its records would be deleted, and its name be reserved, for a job that cannot be."""
    job_submission.submit(store, KEYS, SPEC)
    end(store)
    before = {item.key: item.value for item in store.list("").items}
    args = (secrets.token_hex(3_000_000),)
    with pytest.raises(NotSupported, match="over the limit"):
        job_submission.submit(store, KEYS, replace(SPEC, uid="two", args=args))
    assert {item.key: item.value for item in store.list("").items} == before


def test_another_jobs_records_survive_a_submission(store: MemoryStore) -> None:
    """`digits` is a prefix of `digits-2`, but not of its keys."""
    other = JobName("digits-2")
    job_submission.submit(store, KEYS, replace(SPEC, name=other))
    job_submission.submit(store, KEYS, SPEC)
    assert jobs.find_spec(store, KEYS, other).name == other


def test_a_reservation_left_by_a_dead_submitter_is_taken_over(store: MemoryStore) -> None:
    """It died between its two transactions."""
    put(store, KEYS.active_job(JOB), Active(uid="dead", is_ready=False))
    job_submission.submit(store, KEYS, SPEC)
    assert active(store) == Active(uid="one", is_ready=True)


def test_of_two_submitters_at_once_one_is_refused() -> None:
    """The slower one's reservation was taken over; it must not write its spec."""

    class Raced(MemoryStore):
        is_raced = False

        def commit(self, txn: Txn):  # type: ignore[no-untyped-def]
            if not self.is_raced and any(isinstance(op, Delete) for op in txn.then):
                self.is_raced = True
                put(self, KEYS.active_job(JOB), Active(uid="two", is_ready=False))
            return super().commit(txn)

    store = Raced()
    with pytest.raises(Refused, match="at the same moment"):
        job_submission.submit(store, KEYS, SPEC)
    assert store.get(KEYS.spec(JOB)) is None


def test_joining_submits_once_and_then_follows(store: MemoryStore) -> None:
    """Every host makes the same call with a uid of its own."""
    local = replace(SPEC, is_local=True)
    assert job_submission.submit_or_join(store, KEYS, local).uid == "one"
    assert job_submission.submit_or_join(store, KEYS, replace(local, uid="two")).uid == "one"


def test_joining_another_program_is_refused(store: MemoryStore) -> None:
    """It says in what they differ."""
    local = replace(SPEC, is_local=True)
    job_submission.submit(store, KEYS, local)
    with pytest.raises(Refused, match=r"'t\.py', not 'other\.py'"):
        job_submission.submit_or_join(store, KEYS, replace(local, uid="two", entry="other.py"))


def test_joining_a_job_of_the_daemons_is_refused(store: MemoryStore) -> None:
    """They would not know this host's agent."""
    job_submission.submit(store, KEYS, SPEC)
    with pytest.raises(Refused, match="--join"):
        job_submission.submit_or_join(store, KEYS, replace(SPEC, uid="two", is_local=True))


def test_joining_waits_for_a_submitter_and_takes_over_from_a_dead_one(store: MemoryStore) -> None:
    """The time is the caller's, so that nobody sleeps here."""
    put(store, KEYS.active_job(JOB), Active(uid="slow", is_ready=False))
    waits: list[float] = []
    spec = job_submission.submit_or_join(
        store, KEYS, replace(SPEC, is_local=True), wait_s=1.0, pause=waits.append
    )
    assert spec.uid == "one"
    assert 0.9 <= sum(waits) <= 1.2


def test_more_workers_than_any_nodes_slots_is_refused(store: MemoryStore) -> None:
    """Only if there are nodes: a cluster that is still empty may grow."""
    big = replace(SPEC, workers_per_node=8)
    job_submission.check_room(store, KEYS, big)
    put(store, KEYS.node(NODE.node), NODE)
    job_submission.check_room(store, KEYS, replace(SPEC, workers_per_node=2))
    with pytest.raises(CallError, match="gpu-1: 2"):
        job_submission.check_room(store, KEYS, big)

"""What a person does to jobs and nodes, on a store in memory."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from elasticd.control import job_submission, jobs, node_drain
from elasticd.errors import CallError, NotFound, Refused
from elasticd.records.codec import decode
from elasticd.records.ids import Generation, JobName, NodeId
from elasticd.records.job import UNSERVED_LIMIT_S, Active, JobStatus, Want
from elasticd.records.member import Drain, Member
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.control.job_case import JOB, KEYS, NODE, SPEC, active, end, put


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    opened = MemoryStore()
    yield opened
    opened.close()


def want(store: MemoryStore) -> Want:
    item = store.get(KEYS.want(JOB, "user"))
    assert item is not None
    return decode(Want, item.value)


def join(store: MemoryStore) -> None:
    member = Member(
        node=NODE.node, incarnation=NODE.incarnation, host="h", address="a", port=1, slots=()
    )
    put(store, KEYS.member(JOB, NODE.node), member)


def test_scaling_writes_the_users_wish_within_the_range(store: MemoryStore) -> None:
    """And keeps what else was wished."""
    job_submission.submit(store, KEYS, SPEC)
    join(store)
    jobs.scale(store, KEYS, JOB, 3)
    assert (want(store).nodes, want(store).is_stop) == (3, False)
    jobs.stop(store, KEYS, JOB, why="enough")
    assert (want(store).nodes, want(store).is_stop, want(store).why) == (3, True, "enough")
    with pytest.raises(CallError, match="1:4"):
        jobs.scale(store, KEYS, JOB, 5)


def test_a_users_wish_for_a_size_can_be_taken_back(store: MemoryStore) -> None:
    """The next one's counts then; a wish that the job ends stays."""
    job_submission.submit(store, KEYS, SPEC)
    join(store)
    with pytest.raises(NotFound, match="nothing to take back"):
        jobs.unpin(store, KEYS, JOB)
    jobs.scale(store, KEYS, JOB, 3)
    assert want(store).since_unix_s > 0.0
    assert jobs.unpin(store, KEYS, JOB, is_dry_run=True) == SPEC.max_nodes
    assert want(store).nodes == 3
    put(store, KEYS.want(JOB, "autoscaler"), Want(writer="autoscaler", nodes=2))
    jobs.stop(store, KEYS, JOB, why="enough")
    assert jobs.unpin(store, KEYS, JOB) == 2
    assert (want(store).nodes, want(store).is_stop) == (None, True)


def test_stop_of_a_job_that_nobody_serves_ends_it_at_once(store: MemoryStore) -> None:
    """There is no agent that could read the wish; the name is free again."""
    job_submission.submit(store, KEYS, SPEC)
    jobs.stop(store, KEYS, JOB, why="enough")
    assert active(store) is None
    job_submission.submit(store, KEYS, replace(SPEC, uid="two"))


def test_stop_of_a_job_whose_name_another_one_has_ends_nobody(store: MemoryStore) -> None:
    """Whoever followed the job and pressed Ctrl-C stopped somebody else's."""
    job_submission.submit(store, KEYS, SPEC)
    join(store)
    with pytest.raises(NotFound, match="is over, and another one has its name now"):
        jobs.stop(store, KEYS, JOB, uid="before")
    assert store.get(KEYS.want(JOB, "user")) is None
    jobs.stop(store, KEYS, JOB, uid=SPEC.uid)
    assert want(store).is_stop


def test_wish_to_stop_does_not_reach_a_job_that_takes_the_name_meanwhile() -> None:
    """It was submitted between the look at the old job and the write of the wish."""

    class Raced(MemoryStore):
        def get(self, key: str):  # type: ignore[no-untyped-def]
            if key == KEYS.active_job(JOB):
                put(self, key, Active(uid="two", is_ready=True))
            return super().get(key)

    store = Raced()
    put(store, KEYS.spec(JOB), SPEC)
    put(store, KEYS.status(JOB), JobStatus(uid=SPEC.uid))
    with pytest.raises(NotFound, match="another one has its name now"):
        jobs.stop(store, KEYS, JOB)
    assert store.get(KEYS.want(JOB, "user")) is None


@pytest.mark.parametrize("is_back", [True, False], ids=["back", "gone"])
def test_stop_waits_for_nodes_that_have_just_lost_their_leases(
    store: MemoryStore, is_back: bool
) -> None:
    """After an outage of etcd a job has no node for some seconds; its workers are to save."""
    job_submission.submit(store, KEYS, SPEC)
    put(
        store, KEYS.status(JOB), JobStatus(uid="one", phase=Phase.RUNNING, generation=Generation(3))
    )
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if is_back and len(pauses) == 3:
            join(store)

    jobs.stop(store, KEYS, JOB, now_s=lambda: sum(pauses), pause=pause)
    assert (active(store) is not None) == is_back
    if is_back:
        assert want(store).is_stop and len(pauses) == 3
    else:
        assert sum(pauses) == UNSERVED_LIMIT_S


def test_job_that_took_the_name_meanwhile_is_not_given_up() -> None:
    """It was submitted between the look at the old job and the write that ends that one."""

    class Raced(MemoryStore):
        is_raced = False

        def commit(self, txn: Txn):  # type: ignore[no-untyped-def]
            if not self.is_raced and Delete(key=KEYS.active_job(JOB)) in txn.then:
                self.is_raced = True
                end(self)
                job_submission.submit(self, KEYS, replace(SPEC, uid="two"))
            return super().commit(txn)

    store = Raced()
    job_submission.submit(store, KEYS, SPEC)
    with pytest.raises(NotFound, match="another one has its name"):
        jobs.end_unserved(store, KEYS, JOB)
    assert active(store) == Active(uid="two", is_ready=True)
    store.close()


def test_workers_are_waited_for_until_the_last_has_left(store: MemoryStore) -> None:
    """In pieces, and no longer than it was asked for."""
    join(store)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            store.commit(Txn(then=(Delete(key=KEYS.member(JOB, NODE.node)),)))

    def wait(timeout_s: float, *, is_given_up: bool = False) -> bool:
        return jobs.wait_left(
            store,
            KEYS,
            JOB,
            timeout_s=timeout_s,
            is_given_up=lambda: is_given_up,
            now_s=lambda: sum(pauses),
            pause=pause,
        )

    assert not wait(1.5 * jobs.LEAVE_POLL_S)
    assert len(pauses) == 2
    assert not wait(60.0, is_given_up=True)
    assert wait(60.0)
    assert len(pauses) == 3


def test_a_dry_run_changes_nothing(store: MemoryStore) -> None:
    """But checks all the same."""
    job_submission.submit(store, KEYS, SPEC)
    put(store, KEYS.node(NODE.node), NODE)
    before = store.list(KEYS.root)
    jobs.scale(store, KEYS, JOB, 3, is_dry_run=True)
    jobs.stop(store, KEYS, JOB, is_dry_run=True)
    node_drain.drain(store, KEYS, NODE.node, is_dry_run=True)
    jobs.end_unserved(store, KEYS, JOB, is_dry_run=True)
    assert store.list(KEYS.root).items == before.items
    with pytest.raises(CallError):
        jobs.scale(store, KEYS, JOB, 9, is_dry_run=True)


def test_an_unknown_job_is_answered_with_near_names(store: MemoryStore) -> None:
    """A typo is the likeliest reason."""
    job_submission.submit(store, KEYS, SPEC)
    with pytest.raises(NotFound, match="did you mean digits"):
        jobs.stop(store, KEYS, JobName("digit"))
    with pytest.raises(NotFound, match="none at all"):
        jobs.stop(MemoryStore(), KEYS, JobName("digit"))


def test_an_ended_job_can_neither_be_scaled_nor_stopped(store: MemoryStore) -> None:
    """Its wishes would wait for the next job of that name."""
    job_submission.submit(store, KEYS, SPEC)
    end(store, Phase.FAILED)
    with pytest.raises(NotFound, match="failed"):
        jobs.scale(store, KEYS, JOB, 2)
    with pytest.raises(NotFound, match="failed"):
        jobs.stop(store, KEYS, JOB)


def test_a_job_that_nobody_serves_can_be_forgotten(store: MemoryStore) -> None:
    """All hosts of a --join died at once: the name must become free again."""
    job_submission.submit(store, KEYS, SPEC)
    join(store)
    with pytest.raises(Refused, match="gpu-1"):
        jobs.end_unserved(store, KEYS, JOB)
    store.commit(Txn(then=(Delete(key=KEYS.member(JOB, NODE.node)),)))
    jobs.end_unserved(store, KEYS, JOB)
    assert active(store) is None
    item = store.get(KEYS.status(JOB))
    assert item is not None and decode(JobStatus, item.value).phase is Phase.STOPPED


def test_a_bare_reservation_can_be_forgotten(store: MemoryStore) -> None:
    """It has no spec; only the name is taken."""
    put(store, KEYS.active_job(JOB), Active(uid="dead", is_ready=False))
    jobs.end_unserved(store, KEYS, JOB)
    assert active(store) is None


def test_draining_writes_a_wish_that_can_be_taken_back(store: MemoryStore) -> None:
    """The agent acts on it."""
    put(store, KEYS.node(NODE.node), NODE)
    node_drain.drain(store, KEYS, NODE.node, why="new disk")
    item = store.get(KEYS.drain(NODE.node))
    assert item is not None and decode(Drain, item.value).why == "new disk"
    node_drain.undrain(store, KEYS, NODE.node)
    assert store.get(KEYS.drain(NODE.node)) is None
    with pytest.raises(NotFound, match="is not being drained, and no other is either"):
        node_drain.undrain(store, KEYS, NODE.node)
    with pytest.raises(NotFound, match="did you mean gpu-1"):
        node_drain.drain(store, KEYS, NodeId("gpu-2"))

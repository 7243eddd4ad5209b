"""What a follower tells, with a store in memory and a clock of our own."""

from dataclasses import replace

import pytest

from elasticd.control import job_submission
from elasticd.control.follow import (
    STALL_S,
    EtcdAway,
    EtcdBack,
    Follower,
    JobEnded,
    Waiting,
    WorldFormed,
)
from elasticd.errors import NotFound, Unavailable
from elasticd.records.ids import JobName
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, KeyValue, Txn
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, end, make_newer, node, put, world


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class FlakyStore(MemoryStore):
    is_away = False

    def get(self, key: str) -> KeyValue | None:
        if self.is_away:
            raise Unavailable("No etcd answers.")
        return super().get(key)


def started(store: MemoryStore, clock: Clock) -> Follower:
    put(store, KEYS.status(JOB), JobStatus())
    follower = Follower(store, KEYS, SPEC, now_s=clock)
    for _ in range(2):  # the watches' snapshots: no world, and a pending status
        assert follower.next(0.0) is None
    return follower


def test_each_world_is_told_once_with_the_nodes_of_that_time() -> None:
    """A watch may show it twice, or an older one after a newer."""
    store = MemoryStore()
    follower = started(store, Clock())
    put(store, KEYS.node(node("a").node), node("a"))
    put(store, KEYS.world(JOB), world(1, "a"))
    put(store, KEYS.world(JOB), world(1, "a"))
    news = follower.next(0.0)
    assert isinstance(news, WorldFormed)
    assert news.world.generation == 1 and list(news.nodes) == ["a"]
    assert follower.next(0.0) is None


def test_world_without_a_new_node_is_told_as_such() -> None:
    """Where a worker was replaced on its node, the console said that nodes joined."""
    store = MemoryStore()
    follower = started(store, Clock())
    told = []
    for generation, nodes in enumerate(("a", "ab", "ab", "a", "ac"), 1):
        put(store, KEYS.world(JOB), world(generation, *nodes))
        news = follower.next(0.0)
        assert isinstance(news, WorldFormed)
        told.append(news.has_no_new_node)
    assert told == [False, False, True, True, False]


def test_the_final_status_ends_it() -> None:
    """After it there is nothing more to tell."""
    store = MemoryStore()
    follower = started(store, Clock())
    end(store, Phase.FAILED)
    news = follower.next(0.0)
    assert isinstance(news, JobEnded) and news.status.phase is Phase.FAILED
    put(store, KEYS.world(JOB), world(2, "a"))
    assert follower.next(0.0) is None


def test_waiting_is_told_when_its_message_changes() -> None:
    """And told again after a world stood in between."""
    store = MemoryStore()
    follower = started(store, Clock())
    waiting = JobStatus(phase=Phase.WAITING, message="for b")
    for _ in range(2):
        put(store, KEYS.status(JOB), waiting)
    assert follower.next(0.0) == Waiting(message="for b")
    assert follower.next(0.0) is None
    put(store, KEYS.world(JOB), world(1, "a"))
    assert isinstance(follower.next(0.0), WorldFormed)
    put(store, KEYS.status(JOB), waiting)
    assert follower.next(0.0) == Waiting(message="for b")


def test_a_world_that_a_watch_missed_is_found_by_the_slow_reread() -> None:
    """A watch event is a hint."""
    store, clock = MemoryStore(), Clock()
    follower = started(store, clock)
    follower.close()  # its watches see nothing from here on
    put(store, KEYS.world(JOB), world(1, "a"))
    assert follower.next(0.0) is None
    clock.now_s = 6.0
    assert isinstance(follower.next(0.0), WorldFormed)


def test_an_etcd_that_does_not_answer_is_told_once_and_its_return_too() -> None:
    """The workers go on meanwhile."""
    store, clock = FlakyStore(), Clock()
    follower = started(store, clock)
    put(store, KEYS.world(JOB), world(1, "a"))
    assert isinstance(follower.next(0.0), WorldFormed)
    store.is_away = True
    clock.now_s = 6.0
    assert isinstance(follower.next(0.0), EtcdAway)
    clock.now_s = 12.0
    assert follower.next(0.0) is None
    store.is_away = False
    clock.now_s = 18.0
    assert isinstance(follower.next(0.0), EtcdBack)


def test_a_job_without_a_world_says_for_whom_it_waits() -> None:
    """Even if there is no agent that could say so."""
    store, clock = MemoryStore(), Clock()
    follower = started(store, clock)
    clock.now_s = 11.0
    news = follower.next(0.0)
    assert isinstance(news, Waiting) and "0 of at least 1" in news.message


def test_removed_records_are_an_error_not_a_silence() -> None:
    """Another job of the name cleared them away."""
    store = MemoryStore()
    follower = started(store, Clock())
    store.commit(Txn(then=(Delete(key=KEYS.job(JOB), is_prefix=True),)))
    with pytest.raises(NotFound, match="removed"):
        follower.next(0.0)


def test_a_signal_handler_can_wake_it() -> None:
    """`next` returns at once, not after its timeout."""
    follower = started(MemoryStore(), Clock())
    follower.wake()
    assert follower.next(60.0) is None


def test_what_etcd_refuses_to_take_from_the_proposers_is_told_once() -> None:
    """Nobody shuts them out, and no other world comes: it would look as if all were well."""
    store, clock = MemoryStore(), Clock()
    told = {"a": "etcd at http://e:2379 is full", "b": ""}
    put(store, KEYS.status(JOB), JobStatus())
    follower = Follower(store, KEYS, SPEC, trouble=lambda n: told[n.node], now_s=clock)
    for name in told:
        put(store, KEYS.node(node(name).node), node(name))
    put(store, KEYS.world(JOB), world(1, "a", "b"))
    news = []
    for _ in range(12):
        clock.now_s += 6.0
        news += [found for _ in range(3) if (found := follower.next(0.0)) is not None]
    assert isinstance(news.pop(0), WorldFormed)
    (waiting,) = news
    assert isinstance(waiting, Waiting)
    assert waiting.message == "node a cannot write to etcd: etcd at http://e:2379 is full"


def test_records_of_others_that_are_newer_end_no_follower() -> None:
    """`elasticd run` ended although its own job went on; what is left out is named."""
    store, clock = MemoryStore(), Clock()
    follower = started(store, clock)
    other = JobName("other")
    job_submission.submit(store, KEYS, replace(SPEC, name=other, uid="o"))
    make_newer(store, KEYS.spec(other))
    for name in "ab":
        put(store, KEYS.node(node(name).node), node(name))
    make_newer(store, KEYS.node(node("b").node))
    clock.now_s += STALL_S
    news = follower.next(0.0)
    assert isinstance(news, Waiting)
    assert "waiting for 1 more node" in news.message
    assert "; job other, node b are left out: The JobSpec record" in news.message
    put(store, KEYS.world(JOB), world(1, "a"))
    formed = follower.next(0.0)
    assert isinstance(formed, WorldFormed) and list(formed.nodes) == ["a"]


@pytest.mark.parametrize("is_reread", [False, True], ids=["watch", "re-read"])
@pytest.mark.parametrize("is_world", [False, True], ids=["status", "world"])
def test_job_that_took_the_name_is_not_followed(is_world: bool, is_reread: bool) -> None:
    """A laptop slept, and etcd was compacted: the watch began anew with another job's records, and
    that job's end was told as the end of this one.
    """
    store, clock = MemoryStore(), Clock()
    follower = started(store, clock)
    put(store, KEYS.status(JOB), JobStatus(uid=SPEC.uid, phase=Phase.RUNNING))
    put(store, KEYS.world(JOB), replace(world(1, "a"), uid=SPEC.uid))
    assert follower.next(0.0) is None
    assert isinstance(follower.next(0.0), WorldFormed)
    if is_reread:
        follower.close()
        clock.now_s = 6.0
    if is_world:
        put(store, KEYS.world(JOB), replace(world(1, "b"), uid="v"))
    else:
        put(store, KEYS.status(JOB), JobStatus(uid="v", phase=Phase.SUCCEEDED))
    with pytest.raises(NotFound, match="another job took its name"):
        follower.next(0.0)

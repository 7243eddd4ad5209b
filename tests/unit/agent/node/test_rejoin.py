"""When a node comes back to a job that it has left."""

from queue import Queue
from threading import Thread

import pytest

from elasticd.records.ids import JobName, NodeId
from elasticd.records.keys import Keys
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore
from elasticd_agent.loop.inbox import Item
from elasticd_agent.node.rejoin import JOINS_AT_ONCE, Rejoins
from tests.fixtures.captured_log import captured_log
from tests.fixtures.patience import patience_s

A, B = JobName("A"), JobName("B")


def test_node_that_joins_again_and_again_pauses() -> None:
    """Whatever the reason is: it is no loop, and another job has a count of its own."""
    comebacks = Rejoins(lambda item: item(), MemoryStore(), Keys())
    assert all(comebacks.may_join(A) for _ in range(JOINS_AT_ONCE))
    assert comebacks.wake_s is None
    with captured_log() as logs:
        assert not comebacks.may_join(A)
    assert [(each["event"], each["job"]) for each in logs] == [("job.join_paused", A)]
    assert A in comebacks and comebacks.wake_s is not None
    assert comebacks.may_join(B) and B not in comebacks


def test_job_that_went_away_is_forgotten() -> None:
    """One of the same name begins with a clean record."""
    comebacks = Rejoins(lambda item: item(), MemoryStore(), Keys())
    for _ in range(JOINS_AT_ONCE + 1):
        comebacks.may_join(A)
    comebacks.drop(A)
    assert A not in comebacks and comebacks.may_join(A)


def test_member_that_cannot_be_read_keeps_nobody_out() -> None:
    """Whoever was cut off knocks at every door that is known, and would knock for ever."""
    store, posted = MemoryStore(), Queue[Item]()
    store.commit(Txn(then=(Put(key=Keys().member(A, NodeId("newer")), value=b"{"),)))
    comebacks = Rejoins(posted.put, store, Keys())
    comebacks.add(A, 0.0, has_to_reach=True)
    assert not comebacks.take_due()
    posted.get(timeout=patience_s(30.0))()
    assert comebacks.take_due() and A not in comebacks


def test_node_without_a_thread_left_knocks_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's thread asks for it: the agent would else end, with the workers of all jobs."""
    posted, start = Queue[Item](), Thread.start
    comebacks = Rejoins(posted.put, MemoryStore(), Keys())

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    comebacks.add(A, 0.0, has_to_reach=True)
    with captured_log() as logs:
        assert not comebacks.take_due()
    assert [each["event"] for each in logs] == ["peers.not_probed"]
    assert A in comebacks and comebacks.wake_s is not None
    monkeypatch.setattr(Thread, "start", start)
    comebacks.add(A, 0.0, has_to_reach=True)
    assert not comebacks.take_due()
    posted.get(timeout=patience_s(30.0))()
    assert comebacks.take_due() and A not in comebacks

"""A node's record: one life of an agent at a time has the node's name."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Event

import pytest

from elasticd.errors import Refused
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Incarnation, Life, NodeId, life_of
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import Delete, KeyValue, Put, StoreSettings, Txn, TxnResult
from elasticd.store.memory import MemoryStore
from elasticd_agent.lease import registration
from elasticd_agent.lease.registration import Registration
from elasticd_agent.loop.effect_thread import EffectThread
from elasticd_agent.loop.inbox import Item
from elasticd_agent.settings import AgentSettings
from tests.fixtures.captured_log import captured_log
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port

NODE = NodeId("a")
KEY = Keys().node(NODE)
WAIT_S = patience_s(30.0)


@contextmanager
def listening() -> Iterator[int]:
    """A port where somebody answers, until the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def run_now(item: Item) -> None:
    item()


class Process:
    """One agent process of the node, as far as its registration goes."""

    def __init__(self, store: MemoryStore, life: str, folder: Path) -> None:
        self.events = Queue[str]()
        self.effect_thread = EffectThread()
        self.post: Callable[[Item], None] = run_now
        self.registration = Registration(
            AgentSettings(
                node=NODE,
                host="host",
                address="127.0.0.1",
                store=StoreSettings(endpoints=()),
                environ={},
                run_folder=folder,
                lease_ttl_s=2.0,
            ),
            store,
            self.effect_thread,
            Life(life),
            lambda item: self.post(item),
            lost=lambda: self.events.put("lost"),
            found=lambda: self.events.put("found"),
        )

    def close(self) -> None:
        self.effect_thread.close(WAIT_S)
        self.registration.close()


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore()
    yield store
    store.close()


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RETRY_S", 0.01)
    monkeypatch.setattr(registration, "NAME_RETRY_S", 0.01)


def holder(store: MemoryStore) -> str:
    item = store.get(KEY)
    return "" if item is None else life_of(decode(Node, item.value).incarnation)


def is_draining(store: MemoryStore) -> bool:
    item = store.get(KEY)
    return item is not None and decode(Node, item.value).is_draining


def put_other(store: MemoryStore, life: str, port: int) -> None:
    other = Node(
        node=NODE,
        incarnation=Incarnation(f"{life}.0"),
        host="other",
        address="127.0.0.1",
        port=port,
        slots=1,
        pid=7,
    )
    store.commit(Txn(then=(Put(key=KEY, value=encode(other)),)))


def test_name_of_an_agent_that_listens_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    """Two agents of one name would fight over one record: the second one does not start."""
    with listening() as port:
        put_other(store, "one", port)
        second = Process(store, "two", tmp_path)
        with pytest.raises(Refused, match=f"already served by an agent at 127.0.0.1:{port} "):
            second.registration.open(1, 2)
        second.close()
    assert holder(store) == "one"


def test_of_two_that_start_together_one_is_refused(tmp_path: Path) -> None:
    """Both looked before either wrote: the write itself decides."""

    class Raced(MemoryStore):
        port = 0

        def get(self, key: str) -> KeyValue | None:
            before = super().get(key)
            if before is None and self.port:
                put_other(self, "one", self.port)
            return before

    store = Raced()
    with listening() as port:
        store.port = port
        second = Process(store, "two", tmp_path)
        with pytest.raises(Refused, match="already served"):
            second.registration.open(1, 2)
        second.close()
    assert holder(store) == "one"
    store.close()


def test_name_of_an_agent_that_has_ended_is_taken_over_at_once(
    store: MemoryStore, tmp_path: Path
) -> None:
    """Its machine says that nobody listens there; its lease may take seconds to run out."""
    put_other(store, "one", free_port())
    second = Process(store, "two", tmp_path)
    second.registration.open(1, 2)
    assert holder(store) == "two"
    second.close()
    assert holder(store) == ""


def test_agent_that_lost_its_lease_stands_by_while_another_has_its_name(
    store: MemoryStore, tmp_path: Path
) -> None:
    """It must not overwrite the other one's record, which would do the same in turn."""
    first = Process(store, "one", tmp_path)
    first.registration.open(1, 2)
    with listening() as port:
        assert first.registration.lease is not None
        store.commit(Txn(then=(Delete(key=KEY),)))
        put_other(store, "two", port)
        store.expire(first.registration.lease.id)
        assert first.events.get(timeout=WAIT_S) == "lost"
        assert first.registration.lease is None
        with pytest.raises(Empty):
            first.events.get(timeout=0.2)
        assert holder(store) == "two"
    # That one has ended: the name is free again.
    assert first.events.get(timeout=WAIT_S) == "found"
    assert holder(store) == "one" and not first.registration.is_fenced
    first.close()


def test_agent_whose_record_another_has_written_gives_its_lease_back(
    store: MemoryStore, tmp_path: Path
) -> None:
    """Found at the next change of the record: the node is the other one's."""
    first = Process(store, "one", tmp_path)
    first.registration.open(1, 2)
    with listening() as port:
        put_other(store, "two", port)
        first.registration.set_draining(True)
        assert first.events.get(timeout=WAIT_S) == "lost"
        assert holder(store) == "two"
    first.close()


def test_lease_whose_end_is_told_twice_is_followed_by_one(
    store: MemoryStore, tmp_path: Path
) -> None:
    """By etcd, and by the record that is another agent's: workers are licensed under one lease."""
    first, gate = Process(store, "one", tmp_path), Event()
    first.registration.open(1, 2)
    lease = first.registration.lease
    assert lease is not None
    with listening() as port:
        put_other(store, "two", port)
        first.effect_thread.send(gate.wait, lambda _: None, lambda _: None)
        first.registration.set_draining(True)
        store.expire(lease.id)
        gate.set()
        assert first.events.get(timeout=WAIT_S) == "lost"
    assert first.events.get(timeout=WAIT_S) == "found"
    found = first.registration.lease
    with pytest.raises(Empty):
        first.events.get(timeout=0.2)
    assert first.registration.lease is found
    first.close()


def test_lease_that_is_lost_before_it_is_known_is_sought_anew(
    store: MemoryStore, tmp_path: Path
) -> None:
    """This process stood still between etcd's answer and the next turn of its owner."""
    first, posted = Process(store, "one", tmp_path), list[Item]()
    first.registration.open(1, 2)
    lease = first.registration.lease
    assert lease is not None
    first.post = posted.append
    store.expire(lease.id)
    posted.pop(0)()
    until(lambda: posted, lambda: first.registration.lease)
    (second,) = store._grants
    store.expire(second)
    first.post = run_now
    for each in reversed(posted):  # Two threads told of them.
        each()
        time.sleep(0.05)  # What it asks etcd for is answered.
    until(lambda: not first.registration.is_fenced, lambda: first.registration.lease)
    assert first.registration.lease is not None and first.registration.lease.id > second
    first.close()


def test_drain_that_comes_while_a_lease_is_sought_stands_in_the_record(
    store: MemoryStore, tmp_path: Path
) -> None:
    """The record may have been written just before it, with nobody to write it again."""
    first, posted = Process(store, "one", tmp_path), list[Item]()
    first.registration.open(1, 2)
    lease = first.registration.lease
    assert lease is not None
    first.post = posted.append
    store.expire(lease.id)
    posted.pop(0)()
    until(lambda: posted, lambda: first.registration.lease)
    first.registration.set_draining(True)
    first.post = run_now
    posted.pop(0)()
    until(lambda: is_draining(store), lambda: store.get(KEY))
    first.close()


def test_own_record_is_written_again_after_a_lost_lease(store: MemoryStore, tmp_path: Path) -> None:
    """Also if it stands there still, as after a backup was restored."""
    first = Process(store, "one", tmp_path)
    first.registration.open(1, 2)
    put_other(store, "one", 1)
    assert first.registration.lease is not None
    store.expire(first.registration.lease.id)
    assert [first.events.get(timeout=WAIT_S) for _ in range(2)] == ["lost", "found"]
    assert holder(store) == "one"
    first.close()


def test_record_that_etcd_refuses_is_logged_once_and_tried_ever_more_slowly(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of etcd may say the same in other words, in turn; a drain is written in the end."""
    one = Process(store, "one", tmp_path)
    one.registration.open(1, 2)
    pauses, commit = list[float](), store.commit
    refusals = iter(["full", "no room", "full", "no room", "full"])

    def refusing(txn: Txn) -> TxnResult:
        for why in refusals:
            raise Refused(why)
        return commit(txn)

    def later(pause_s: float, call: Callable[[], object]) -> None:
        pauses.append(pause_s)
        call()

    monkeypatch.setattr(store, "commit", refusing)
    monkeypatch.setattr(registration, "later", later)
    with captured_log("etcd.write_failed", "etcd.write_succeeded") as logs:
        one.registration.set_draining(True)
        until(lambda: is_draining(store), lambda: pauses)
        one.effect_thread.close(WAIT_S)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert [(line["event"], line.get("why")) for line in logs] == [
        ("etcd.write_failed", "full"),
        ("etcd.write_failed", "no room"),
        ("etcd.write_succeeded", None),
    ]
    assert one.effect_thread.failed_writes.sentence == ""
    one.registration.close()

"""What the store in memory has beyond the contract."""

import pytest

from elasticd.errors import Unavailable
from elasticd.store.api import KeyRange, Put, Txn
from elasticd.store.memory import MemoryStore
from tests.fixtures.recorder import Recorder


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_saved_records_are_there_to_read() -> None:
    """In the order of their keys; one that was saved twice with its later value."""
    store = MemoryStore.from_items([("/b", b"1"), ("/a", b"2"), ("/b", b"3")])
    assert [(item.key, item.value) for item in store.list("/").items] == [
        ("/a", b"2"),
        ("/b", b"3"),
    ]


def test_no_records_make_an_empty_store() -> None:
    """A job that ended before it wrote anything."""
    assert MemoryStore.from_items([]).list("").items == ()


def test_abandoned_lease_ends_by_the_given_clock() -> None:
    """And its watchers see it when the clock is looked at."""
    clock, recorder = Clock(), Recorder()
    store = MemoryStore(now_s=clock)
    lease = store.grant(5.0, lambda: None)
    store.commit(Txn(then=(Put(key="/a", value=b"", lease=lease.id),)))
    store.watch(KeyRange(key="/a"), recorder)
    clock.now_s = 200.0
    assert lease.deadline_s == 205.0, "it keeps itself alive"
    lease.close()
    clock.now_s = 204.9
    store.tick()
    assert recorder.changes() == []
    clock.now_s = 205.0
    store.tick()
    assert recorder.changes() == [("/a", None)]


def test_store_that_is_away_answers_nothing_and_catches_up() -> None:
    """Calls fail, the deadline of a lease stands still, watches wait."""
    clock, recorder = Clock(), Recorder()
    store = MemoryStore(now_s=clock)
    lease = store.grant(5.0, lambda: None)
    store.watch(KeyRange(key="/a"), recorder)
    store.go_away()
    clock.now_s = 150.0
    assert lease.deadline_s == 105.0
    with pytest.raises(Unavailable):
        store.get("/a")
    store.come_back()
    assert lease.deadline_s == 155.0
    store.commit(Txn(then=(Put(key="/a", value=b"1"),)))
    assert recorder.changes() == [("/a", b"1")]


def test_sink_that_writes_is_not_called_within_its_own_call() -> None:
    """What it causes comes after, in order, for every watch."""
    store, second = MemoryStore(), Recorder()
    running: list[object] = []

    def sink(event: object) -> None:
        assert not running
        running.append(event)
        item = store.get("/a")
        if item is not None and len(item.value) < 3:
            store.commit(Txn(then=(Put(key="/a", value=item.value + b"x"),)))
        running.clear()

    store.watch(KeyRange(key="/a"), sink)
    store.watch(KeyRange(key="/a"), second)
    store.commit(Txn(then=(Put(key="/a", value=b"x"),)))
    assert second.changes() == [("/a", b"x"), ("/a", b"xx"), ("/a", b"xxx")]


def test_lease_runs_out_while_its_holder_may_not_renew_it() -> None:
    """As of an agent whose owner stands still; one that goes on in time keeps it."""
    now_s, may, lost = [0.0], [True], list[str]()
    store = MemoryStore(now_s=lambda: now_s[0])
    lease = store.grant(2.0, lambda: lost.append("lost"), lambda: may[0])
    for now_s[0], may[0] in ((10.0, True), (11.0, False), (12.0, False), (12.5, True)):
        store.tick()
    assert not lost and lease.deadline_s == 14.5
    for now_s[0], may[0] in ((20.0, False), (21.9, False)):
        store.tick()
    assert not lost and lease.deadline_s == 22.0
    now_s[0] = 22.0
    store.tick()
    assert lost == ["lost"]

"""The contract of `Store.watch`, kept by memory and by every etcd that we work with."""

import threading

import pytest

from elasticd.store.api import Delete, KeyRange, KeysChanged, Put, Store, Txn, WatchSnapshot
from tests.contract.conftest import Backend
from tests.fixtures.recorder import Recorder
from tests.fixtures.store import fail, put


def test_watch_begins_with_a_snapshot(store: Store, prefix: str) -> None:
    """Also of an empty range: then the consumer knows that it is empty."""
    full, empty = Recorder(), Recorder()
    put(store, f"{prefix}a/1", b"1")
    store.watch(KeyRange(key=f"{prefix}a/", is_prefix=True), full)
    store.watch(KeyRange(key=f"{prefix}b/", is_prefix=True), empty)
    full.wait_snapshots()
    empty.wait_snapshots()
    assert full.state() == {f"{prefix}a/1": b"1"}
    assert empty.snapshots[0].items == ()


def test_watch_gives_every_change_in_order(store: Store, prefix: str) -> None:
    """Nothing is merged, dropped or given twice."""
    recorder = Recorder()
    store.watch(KeyRange(key=prefix, is_prefix=True), recorder)
    recorder.wait_snapshots()
    expected = [(f"{prefix}{i % 7}", str(i).encode()) for i in range(200)]
    for key, value in expected:
        put(store, key, value)
    recorder.wait_changes(len(expected))
    assert recorder.changes() == expected
    revisions = [event.revision for event in recorder.events]
    assert revisions == sorted(revisions)


def test_watch_opened_amid_writes_misses_none(backend: Backend, prefix: str) -> None:
    """Between the snapshot and the first change there is no gap."""
    written: list[bytes] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            written.append(str(len(written)).encode())
            put(backend.other, f"{prefix}a", written[-1])

    writer = threading.Thread(target=write)
    writer.start()
    recorders = [Recorder() for _ in range(20)]
    for recorder in recorders:
        backend.store.watch(KeyRange(key=f"{prefix}a"), recorder)
        recorder.wait_snapshots()
    stop.set()
    writer.join()
    for recorder in recorders:
        recorder.wait_state({f"{prefix}a": written[-1]})
        first = recorder.snapshots[0].items
        begin = written.index(first[0].value) + 1 if first else 0
        assert [value for _, value in recorder.changes()] == written[begin:]


def test_changes_of_one_transaction_come_together(store: Store, prefix: str) -> None:
    """A consumer never acts on half of one."""
    recorder = Recorder()
    put(store, f"{prefix}gone")
    store.watch(KeyRange(key=prefix, is_prefix=True), recorder)
    recorder.wait_snapshots()
    revision = store.commit(
        Txn(
            then=(
                Put(key=f"{prefix}a", value=b"1"),
                Put(key=f"{prefix}b", value=b"2"),
                Delete(key=f"{prefix}gone"),
            )
        )
    ).revision
    recorder.wait_changes(3)
    (event,) = recorder.events[1:]
    assert isinstance(event, KeysChanged)
    assert event.revision == revision
    assert {change.key: change.item and change.item.value for change in event.changes} == {
        f"{prefix}a": b"1",
        f"{prefix}b": b"2",
        f"{prefix}gone": None,
    }


def test_watch_carries_the_revisions_that_a_read_would(store: Store, prefix: str) -> None:
    """So a compare can be made from what the watch said."""
    recorder = Recorder()
    store.watch(KeyRange(key=f"{prefix}a"), recorder)
    recorder.wait_snapshots()
    put(store, f"{prefix}a", b"1")
    put(store, f"{prefix}a", b"2")
    recorder.wait_changes(2)
    last = recorder.events[-1]
    assert isinstance(last, KeysChanged)
    assert last.changes[-1].item == store.get(f"{prefix}a")


def test_watch_of_one_key_sees_no_other(store: Store, prefix: str) -> None:
    """Neither a longer key nor a neighbour."""
    recorder = Recorder()
    store.watch(KeyRange(key=f"{prefix}a"), recorder)
    recorder.wait_snapshots()
    for key in ("a/1", "b", "aa", "a"):
        put(store, prefix + key)
    recorder.wait_changes(1)
    assert recorder.changes() == [(f"{prefix}a", b"v")]


def test_watch_sees_the_keys_of_a_revoked_lease_go(store: Store, prefix: str) -> None:
    """This is how a node that left is noticed."""
    recorder = Recorder()
    lease = store.grant(30.0, fail("x"))
    store.commit(Txn(then=(Put(key=f"{prefix}a", value=b"", lease=lease.id),)))
    store.watch(KeyRange(key=prefix, is_prefix=True), recorder)
    recorder.wait_snapshots()
    lease.revoke()
    recorder.wait_changes(1)
    assert recorder.changes() == [(f"{prefix}a", None)]


def test_closed_watch_gives_nothing_more(store: Store, prefix: str) -> None:
    """While another watch of the same range goes on."""
    closed, open_ = Recorder(), Recorder()
    watch = store.watch(KeyRange(key=prefix, is_prefix=True), closed)
    store.watch(KeyRange(key=prefix, is_prefix=True), open_)
    closed.wait_snapshots()
    open_.wait_snapshots()
    watch.close()
    watch.close()
    put(store, f"{prefix}a")
    open_.wait_changes(1)
    assert closed.changes() == []


def test_sink_may_close_its_own_watch(store: Store, prefix: str) -> None:
    """No deadlock, and no further call."""
    recorder, after = Recorder(), Recorder()

    def sink(event: WatchSnapshot | KeysChanged) -> None:
        recorder(event)
        if isinstance(event, KeysChanged):
            watch.close()

    watch = store.watch(KeyRange(key=prefix, is_prefix=True), sink)
    recorder.wait_snapshots()
    store.watch(KeyRange(key=prefix, is_prefix=True), after)
    after.wait_snapshots()
    put(store, f"{prefix}a")
    recorder.wait_changes(1)  # Else both may come in one event.
    put(store, f"{prefix}b")
    after.wait_changes(2)
    assert recorder.changes() == [(f"{prefix}a", b"v")]


def test_watch_that_was_cut_off_catches_up(backend: Backend, prefix: str) -> None:
    """What happened meanwhile comes as changes, each once, without a new snapshot."""
    recorder = Recorder()
    put(backend.store, f"{prefix}gone")
    backend.store.watch(KeyRange(key=prefix, is_prefix=True), recorder)
    recorder.wait_snapshots()
    put(backend.other, f"{prefix}a", b"1")
    recorder.wait_changes(1)

    def meanwhile() -> None:
        put(backend.other, f"{prefix}a", b"2")
        backend.other.commit(Txn(then=(Delete(key=f"{prefix}gone"),)))

    backend.away(meanwhile, is_compacted=False)
    recorder.wait_changes(3)
    put(backend.other, f"{prefix}a", b"3")
    recorder.wait_changes(4)
    assert recorder.changes() == [
        (f"{prefix}a", b"1"),
        (f"{prefix}a", b"2"),
        (f"{prefix}gone", None),
        (f"{prefix}a", b"3"),
    ]
    assert len(recorder.snapshots) == 1


def test_watch_that_lost_continuity_begins_again_with_a_snapshot(
    backend: Backend, prefix: str
) -> None:
    """Compacted past our revision: what was deleted meanwhile must go from the consumer too."""
    recorder = Recorder()
    put(backend.store, f"{prefix}gone")
    backend.store.watch(KeyRange(key=prefix, is_prefix=True), recorder)
    recorder.wait_snapshots()

    def meanwhile() -> None:
        put(backend.other, f"{prefix}a", b"1")
        backend.other.commit(Txn(then=(Delete(key=f"{prefix}gone"),)))
        put(backend.other, f"{prefix}a", b"2")

    backend.away(meanwhile, is_compacted=True)
    recorder.wait_snapshots(2)
    put(backend.other, f"{prefix}b", b"3")
    recorder.wait_changes(1)
    assert recorder.state() == {f"{prefix}a": b"2", f"{prefix}b": b"3"}


def test_closed_store_calls_no_sink(backend: Backend, prefix: str) -> None:
    """And leaves no thread behind that would."""
    recorder = Recorder()
    backend.store.watch(KeyRange(key=prefix, is_prefix=True), recorder)
    recorder.wait_snapshots()
    backend.store.close()
    seen = len(recorder.events)
    if backend.other is not backend.store:
        put(backend.other, f"{prefix}a")
    assert len(recorder.events) == seen


def test_watch_whose_sink_raises_begins_anew(
    store: Store, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that nobody thought of costs a list, not all watches of the node."""
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: raised.append(told.exc_value))
    frail, other = Recorder(), Recorder()

    def sink(event: WatchSnapshot | KeysChanged) -> None:
        if not raised or (isinstance(event, KeysChanged) and len(raised) < 2):
            raise ValueError("nobody thought of that")
        frail(event)

    put(store, f"{prefix}a", b"1")
    store.watch(KeyRange(key=prefix, is_prefix=True), other)
    other.wait_snapshots()
    store.watch(KeyRange(key=prefix, is_prefix=True), sink)
    put(store, f"{prefix}a", b"2")
    frail.wait_state({f"{prefix}a": b"2"})
    put(store, f"{prefix}a", b"3")
    put(store, f"{prefix}a", b"4")
    for recorder in (frail, other):
        recorder.wait_state({f"{prefix}a": b"4"})
    assert [str(error) for error in raised] == ["nobody thought of that"] * 2

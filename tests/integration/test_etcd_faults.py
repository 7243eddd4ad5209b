"""What happens to the store when etcd, or the way to it, breaks."""

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from elasticd.errors import Unavailable
from elasticd.store.api import KeyRange, Put, Store, Txn
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.fixtures.etcd import EtcdCluster, crash
from tests.fixtures.patience import patience_s
from tests.fixtures.recorder import LIMIT_S, Recorder
from tests.fixtures.store import (
    ALL,
    PATIENT_S,
    Connect,
    boottime_s,
    commit_in_thread,
    fail,
    port_of,
    put,
    put_until_done,
    wait_until,
)
from tests.fixtures.tcp_proxy import TcpProxy

TTL_S = patience_s(4.0)
"""Of a lease that a test waits out: nobody is to lose one because a core was busy for seconds."""

# --- one etcd ---------------------------------------------------------------------------------


def test_watch_and_lease_survive_a_crash_of_etcd(own_etcd: EmbeddedEtcd, connect: Connect) -> None:
    """Every change is seen once, the key of the lease is still there, the deadline moves again."""
    lost = threading.Event()
    store, recorder = connect(own_etcd.url, timeout_s=PATIENT_S), Recorder()
    lease = store.grant(2 * TTL_S, lost.set)
    store.commit(Txn(then=(Put(key="/t/leased", value=b"1", lease=lease.id),)))
    store.watch(ALL, recorder)
    recorder.wait_snapshots()
    for count in range(3):
        put(store, "/t/a", f"before {count}".encode())
        crash(own_etcd)
        own_etcd.restart()
        put(store, "/t/a", f"after {count}".encode())
    recorder.wait_changes(6)
    assert [value for _, value in recorder.changes()] == [
        f"{when} {count}".encode() for count in range(3) for when in ("before", "after")
    ]
    assert len(recorder.snapshots) == 1
    back_s = boottime_s()
    wait_until(lambda: lease.deadline_s > back_s + lease.ttl_s / 2)
    assert store.get("/t/leased") is not None
    assert not lost.is_set()


def test_lease_outlives_an_outage_longer_than_its_ttl(
    own_etcd: EmbeddedEtcd, connect: Connect
) -> None:
    """The deadline passes, so the holder stops writing; then etcd is back and it moves on."""
    lost = threading.Event()
    store = connect(own_etcd.url, timeout_s=PATIENT_S)
    lease = store.grant(TTL_S, lost.set)
    crash(own_etcd)
    wait_until(lambda: boottime_s() > lease.deadline_s + 0.5)
    own_etcd.restart()
    wait_until(lambda: lease.deadline_s > boottime_s())
    assert not lost.is_set()


def test_call_waits_for_etcd_to_come_back(own_etcd: EmbeddedEtcd, connect: Connect) -> None:
    """A restart within the timeout is not an error."""
    store = connect(own_etcd.url, timeout_s=PATIENT_S)
    put(store, "/t/a", b"1")
    crash(own_etcd)
    read = commit_in_thread(store, Txn(then=(Put(key="/t/a", value=b"2"),)))
    own_etcd.restart()
    assert read().succeeded


def test_lease_that_ran_out_while_we_were_cut_off_is_reported_lost(
    shared_etcd: EmbeddedEtcd, proxy: TcpProxy, connect: Connect
) -> None:
    """etcd counted it down, as nobody came through to keep it alive."""
    lost = threading.Event()
    store, other = connect(proxy.url, timeout_s=TTL_S), connect(shared_etcd.url)
    lease = store.grant(TTL_S, lost.set)
    other.commit(Txn(then=(Put(key="/t/leased", value=b"", lease=lease.id),)))
    proxy.close_door()
    wait_until(lambda: other.get("/t/leased") is None)
    assert boottime_s() > lease.deadline_s, "it must be over for us before it is for etcd"
    assert not lost.is_set()
    proxy.open_door()
    assert lost.wait(LIMIT_S)


def test_etcd_that_lost_its_past_makes_the_watch_begin_again(
    etcd_program: Path, tmp_path: Path, connect: Connect
) -> None:
    """A fresh etcd at the same address: what it does not have must go from the consumer."""
    with TcpProxy(0) as proxy:
        with EmbeddedEtcd(tmp_path / "old", program=etcd_program, env=os.environ) as old:
            proxy.lead_to(port_of(old.url))
            store, recorder = connect(proxy.url, timeout_s=PATIENT_S), Recorder()
            for count in range(20):
                put(store, "/t/a", str(count).encode())
            store.watch(ALL, recorder)
            recorder.wait_snapshots()
        with EmbeddedEtcd(tmp_path / "new", program=etcd_program, env=os.environ) as new:
            proxy.lead_to(port_of(new.url))
            recorder.wait_snapshots(2)
            assert recorder.state() == {}
            put(store, "/t/b", b"1")
            recorder.wait_state({"/t/b": b"1"})
            store.close()


def test_etcd_restored_from_a_backup_makes_the_watch_begin_again(
    own_etcd: EmbeddedEtcd, tmp_path: Path, connect: Connect
) -> None:
    """The same cluster, but its revision goes back: what came after the backup is gone."""
    store, recorder = connect(own_etcd.url, timeout_s=PATIENT_S), Recorder()
    put(store, "/t/a", b"saved")
    own_etcd.stop()
    shutil.copytree(own_etcd.data, tmp_path / "backup")
    own_etcd.restart()
    for count in range(20):
        put(store, "/t/a", str(count).encode())
    store.watch(ALL, recorder)
    recorder.wait_snapshots()
    own_etcd.stop()
    shutil.rmtree(own_etcd.data)
    shutil.copytree(tmp_path / "backup", own_etcd.data)
    own_etcd.restart()
    recorder.wait_state({"/t/a": b"saved"})


def test_close_returns_when_etcd_is_gone(own_etcd: EmbeddedEtcd, connect: Connect) -> None:
    """All threads end, though each was waiting for an answer."""
    before = set(threading.enumerate())
    store, recorder = connect(own_etcd.url, timeout_s=patience_s(60.0)), Recorder()
    store.grant(patience_s(60.0), fail("x"))
    store.watch(ALL, recorder)
    recorder.wait_snapshots()
    crash(own_etcd)
    stuck: list[Exception] = []

    def read() -> None:
        try:
            store.get("/t/a")
        except Unavailable as exc:
            stuck.append(exc)

    reader = threading.Thread(target=read)
    reader.start()
    store.close()
    reader.join(LIMIT_S)
    assert stuck
    wait_until(lambda: set(threading.enumerate()) <= before)


def test_silent_etcd_is_reported_within_the_timeout(
    shared_etcd: EmbeddedEtcd, proxy: TcpProxy, connect: Connect
) -> None:
    """Nothing comes back and nothing breaks: only our own clock ends the call."""
    store = connect(proxy.url, timeout_s=patience_s(1.0))
    wait_until(lambda: is_answered(store))
    proxy.is_losing_answers = True
    with pytest.raises(Unavailable):
        store.get("/t/a")
    proxy.heal()
    # The connection is broken by that, and made anew in the time that is left for a call.
    wait_until(lambda: is_answered(store))


def is_answered(store: Store) -> bool:
    with suppress(Unavailable):
        store.get("/t/a")
        return True
    return False


def test_watch_leaves_a_connection_that_fell_silent(
    shared_etcd: EmbeddedEtcd, proxy: TcpProxy, connect: Connect
) -> None:
    """Half open: the calls notice it, and take the watch along to a new connection."""
    store, other = connect(proxy.url, timeout_s=patience_s(9.0)), connect(shared_etcd.url)
    recorder = Recorder()
    store.watch(KeyRange(key="/silent"), recorder)
    recorder.wait_snapshots()
    proxy.freeze()
    put(other, "/silent", b"1")
    assert store.get("/silent") is not None
    recorder.wait_changes(1)


# --- three members ----------------------------------------------------------------------------


def test_death_of_any_member_is_not_noticed(etcd_cluster: EtcdCluster, connect: Connect) -> None:
    """Each in turn, the leader among them: no error, no lost lease, every change seen once."""
    lost = threading.Event()
    store, recorder = connect(*etcd_cluster.urls, timeout_s=PATIENT_S), Recorder()
    lease = store.grant(patience_s(30.0), lost.set)
    store.commit(Txn(then=(Put(key="/t/leased", value=b"", lease=lease.id),)))
    store.watch(KeyRange(key="/t/a"), recorder)
    recorder.wait_snapshots()
    expected = []
    for member in etcd_cluster.members:
        member.kill()
        for when in ("down", "still down"):
            expected.append(f"{member.url} {when}".encode())
            put(store, "/t/a", expected[-1])
        member.start()
    recorder.wait_changes(len(expected))
    assert [value for _, value in recorder.changes()] == expected
    assert len(recorder.snapshots) == 1
    assert store.get("/t/leased") is not None
    assert not lost.is_set()


def test_stopped_leader_is_left_for_the_others(etcd_cluster: EtcdCluster, connect: Connect) -> None:
    """It still accepts connections and never answers; writes go on through the others."""
    leader = etcd_cluster.leader()
    urls = [leader.url, *(url for url in etcd_cluster.urls if url != leader.url)]
    store, recorder = connect(*urls, timeout_s=PATIENT_S), Recorder()
    store.watch(ALL, recorder)
    recorder.wait_snapshots()
    leader.pause()
    try:
        put(store, "/t/a", b"1")
        recorder.wait_changes(1)
    finally:
        leader.resume()


def test_member_without_quorum_is_left_for_one_with(
    etcd_cluster: EtcdCluster, connect: Connect
) -> None:
    """Our member is cut off from its peers but not from us: it is up, and useless."""
    lonely = etcd_cluster.followers()[0]
    others = [url for url in etcd_cluster.urls if url != lonely.url]
    store = connect(lonely.url, *others, timeout_s=PATIENT_S)
    watcher, recorder = connect(lonely.url, *others, timeout_s=PATIENT_S), Recorder()
    watcher.watch(ALL, recorder)
    recorder.wait_snapshots()
    etcd_cluster.isolate(lonely)
    put_until_done(store, "/t/a", b"1")
    recorder.wait_state({"/t/a": b"1"})


def test_loss_of_the_quorum_is_told_as_such(etcd_cluster: EtcdCluster, connect: Connect) -> None:
    """Two of three stopped; when they are back, everything goes on."""
    store, recorder = connect(*etcd_cluster.urls, timeout_s=patience_s(3.0)), Recorder()
    store.watch(ALL, recorder)
    recorder.wait_snapshots()
    put_until_done(store, "/t/a", b"1")  # They may hold an election just now.
    stopped = etcd_cluster.members[:2]
    for member in stopped:
        member.pause()
    try:
        # The last one may need a moment to notice that it is alone.
        wait_until(lambda: "no leader: a majority of its members must be up" in refusal(store))
    finally:
        for member in stopped:
            member.resume()
    put_until_done(store, "/t/a", b"2")
    recorder.wait_state({"/t/a": b"2"})


def refusal(store: EtcdStore) -> str:
    """Write, and return the sentence with which that fails.

    What was refused for want of an answer may be carried out later: so it is not what is watched.
    """
    with pytest.raises(Unavailable) as caught:
        put(store, "/elsewhere/a", b"x")
    return str(caught.value)

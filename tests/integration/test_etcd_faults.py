"""What happens to the store when etcd, or the way to it, breaks."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticd.errors import ElasticdError, Refused, Unavailable
from elasticd.store.api import (
    Delete,
    KeyRange,
    ModifiedAt,
    Put,
    StoreSettings,
    Txn,
    TxnResult,
)
from elasticd.store.embedded import EmbeddedEtcd, free_port
from elasticd.store.etcd import EtcdStore
from tests.fixtures.etcd import EtcdAdmin, EtcdCluster, EtcdMember, TlsEtcd
from tests.fixtures.recorder import LIMIT_S, Recorder
from tests.fixtures.tcp_proxy import TcpProxy

ALL = KeyRange(key="/t/", is_prefix=True)
# Enough for a member that is asked first to be given up, on a loaded machine of two cores.
PATIENT_S = 20.0

Connect = Callable[..., EtcdStore]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens stores and closes them after the test."""
    with contextlib.ExitStack() as stack:

        def open_store(*urls: str, **settings: str | float) -> EtcdStore:
            store = EtcdStore(StoreSettings(endpoints=urls, **settings))  # type: ignore[arg-type]
            stack.callback(store.close)
            return store

        yield open_store


@pytest.fixture
def proxy(shared_etcd: EmbeddedEtcd) -> Iterator[TcpProxy]:
    with TcpProxy(port_of(shared_etcd.url)) as proxy:
        yield proxy


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def put(store: EtcdStore, key: str, value: bytes) -> int:
    return store.commit(Txn(then=(Put(key=key, value=value),))).revision


def put_until_done(store: EtcdStore, key: str, value: bytes) -> None:
    limit_s = time.monotonic() + LIMIT_S
    while True:
        try:
            put(store, key, value)
            return
        except Unavailable:
            assert time.monotonic() < limit_s


def boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wait_until(is_true: Callable[[], bool]) -> None:
    limit_s = time.monotonic() + LIMIT_S
    while not is_true():
        assert time.monotonic() < limit_s
        time.sleep(0.02)


def fail(name: str) -> Callable[[], None]:
    def on_lost() -> None:
        raise AssertionError(f"lease {name} was lost")

    return on_lost


# --- one etcd ---------------------------------------------------------------------------------


def test_watch_and_lease_survive_a_crash_of_etcd(own_etcd: EmbeddedEtcd, connect: Connect) -> None:
    """Every change is seen once, the key of the lease is still there, the deadline moves again."""
    lost = threading.Event()
    store, recorder = connect(own_etcd.url, timeout_s=PATIENT_S), Recorder()
    lease = store.grant(2.0, lost.set)
    store.commit(Txn(then=(Put(key="/t/leased", value=b"1", lease=lease.id),)))
    store.watch(ALL, recorder)
    recorder.wait_snapshots()
    for count in range(3):
        put(store, "/t/a", f"before {count}".encode())
        own_etcd.kill()
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
    lease = store.grant(1.0, lost.set)
    own_etcd.kill()
    wait_until(lambda: boottime_s() > lease.deadline_s + 0.5)
    own_etcd.restart()
    wait_until(lambda: lease.deadline_s > boottime_s())
    assert not lost.is_set()


def test_call_waits_for_etcd_to_come_back(own_etcd: EmbeddedEtcd, connect: Connect) -> None:
    """A restart within the timeout is not an error."""
    store = connect(own_etcd.url, timeout_s=PATIENT_S)
    put(store, "/t/a", b"1")
    own_etcd.kill()
    read = commit_in_thread(store, Txn(then=(Put(key="/t/a", value=b"2"),)))
    own_etcd.restart()
    assert read().succeeded


def test_lease_that_ran_out_while_we_were_cut_off_is_reported_lost(
    shared_etcd: EmbeddedEtcd, proxy: TcpProxy, connect: Connect
) -> None:
    """etcd counted it down, as nobody came through to keep it alive."""
    lost = threading.Event()
    store, other = connect(proxy.url, timeout_s=1.0), connect(shared_etcd.url)
    lease = store.grant(1.0, lost.set)
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
        with EmbeddedEtcd(tmp_path / "old", program=etcd_program) as old:
            proxy.lead_to(port_of(old.url))
            store, recorder = connect(proxy.url, timeout_s=PATIENT_S), Recorder()
            for count in range(20):
                put(store, "/t/a", str(count).encode())
            store.watch(ALL, recorder)
            recorder.wait_snapshots()
        with EmbeddedEtcd(tmp_path / "new", program=etcd_program) as new:
            proxy.lead_to(port_of(new.url))
            recorder.wait_snapshots(2)
            assert recorder.state() == {}
            put(store, "/t/b", b"1")
            recorder.wait_state({"/t/b": b"1"})
            store.close()


def test_close_returns_when_etcd_is_gone(own_etcd: EmbeddedEtcd, connect: Connect) -> None:
    """All threads end, though each was waiting for an answer."""
    before = set(threading.enumerate())
    store, recorder = connect(own_etcd.url, timeout_s=60.0), Recorder()
    store.grant(2.0, fail("x"))
    store.watch(ALL, recorder)
    recorder.wait_snapshots()
    own_etcd.kill()
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
    store = connect(proxy.url, timeout_s=1.0)
    store.get("/t/a")
    proxy.is_losing_answers = True
    with pytest.raises(Unavailable):
        store.get("/t/a")
    proxy.heal()
    store.get("/t/a")


def test_watch_leaves_a_connection_that_fell_silent(
    shared_etcd: EmbeddedEtcd, proxy: TcpProxy, connect: Connect
) -> None:
    """Half open: the calls notice it, and take the watch along to a new connection."""
    store, other, recorder = connect(proxy.url, timeout_s=3.0), connect(shared_etcd.url), Recorder()
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
    lease = store.grant(5.0, lost.set)
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
    store, recorder = connect(*etcd_cluster.urls, timeout_s=3.0), Recorder()
    store.watch(ALL, recorder)
    recorder.wait_snapshots()
    put(store, "/t/a", b"1")
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
    """Write, and return the sentence with which that fails."""
    with pytest.raises(Unavailable) as caught:
        put(store, "/t/a", b"x")
    return str(caught.value)


def put_without_end(store: EtcdStore) -> None:
    for count in range(1000):
        put(store, f"/t/{count}", b"x" * 128 * 1024)


# --- answers that got lost --------------------------------------------------------------------


def create(key: str, **more: tuple[Put, ...]) -> Txn:
    return Txn(
        when=(ModifiedAt(key=key, revision=0),), then=(Put(key=key, value=b"token"),), **more
    )


def commit_in_thread(store: EtcdStore, txn: Txn) -> Callable[[], TxnResult]:
    """Start it; the returned function waits for the result."""
    results: list[TxnResult | ElasticdError] = []

    def run() -> None:
        try:
            results.append(store.commit(txn))
        except ElasticdError as exc:
            results.append(exc)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> TxnResult:
        thread.join(LIMIT_S)
        assert isinstance(results[0], TxnResult), results
        return results[0]

    return result


def test_own_transaction_is_recognized_when_its_answer_got_lost(
    shared_etcd: EmbeddedEtcd, proxy: TcpProxy, connect: Connect
) -> None:
    """It was carried out: to send it again would report that we lost against ourselves."""
    store, other = connect(proxy.url, timeout_s=PATIENT_S), connect(shared_etcd.url)
    store.get("/lost")
    proxy.is_losing_answers = True
    result = commit_in_thread(store, create("/lost"))
    wait_until(lambda: other.get("/lost") is not None)
    assert proxy.lost.wait(LIMIT_S)
    proxy.heal()
    item = other.get("/lost")
    assert item is not None
    assert result() == TxnResult(succeeded=True, revision=item.mod_revision)
    other.commit(Txn(then=(Delete(key="/lost"),)))


def test_transaction_that_never_arrived_is_sent_again(
    shared_etcd: EmbeddedEtcd, proxy: TcpProxy, connect: Connect
) -> None:
    """Once: the key has one version."""
    store, other = connect(proxy.url, timeout_s=PATIENT_S), connect(shared_etcd.url)
    store.get("/never")
    proxy.is_losing_requests = True
    result = commit_in_thread(store, create("/never"))
    assert proxy.lost.wait(LIMIT_S)
    proxy.heal()
    assert result().succeeded
    item = other.get("/never")
    assert item is not None and item.create_revision == item.mod_revision
    other.commit(Txn(then=(Delete(key="/never"),)))


def test_transaction_that_never_arrived_loses_to_a_quicker_one(
    shared_etcd: EmbeddedEtcd, proxy: TcpProxy, connect: Connect
) -> None:
    """Their value stays, ours is reported as failed, and our else-branch is done."""
    store, other = connect(proxy.url, timeout_s=PATIENT_S), connect(shared_etcd.url)
    store.get("/quick")
    proxy.is_losing_requests = True
    result = commit_in_thread(store, create("/quick", otherwise=(Put(key="/else", value=b"done"),)))
    assert proxy.lost.wait(LIMIT_S)
    put(other, "/quick", b"theirs")
    proxy.heal()
    assert not result().succeeded
    item, done = other.get("/quick"), other.get("/else")
    assert item is not None and item.value == b"theirs"
    assert done is not None and done.value == b"done"
    other.commit(Txn(then=(Delete(key="/quick"), Delete(key="/else"))))


# --- who may ----------------------------------------------------------------------------------


def test_client_with_the_right_certificates_gets_in(tls_etcd: TlsEtcd, connect: Connect) -> None:
    """By address and by name; calls and watches."""
    files = {"cert_file": tls_etcd.cert_file, "key_file": tls_etcd.key_file}
    by_name = tls_etcd.url.replace("127.0.0.1", "localhost")
    for url in (tls_etcd.url, by_name):
        store, recorder = connect(url, ca_file=tls_etcd.ca_file, **files), Recorder()
        put(store, "/t/a", b"1")
        store.watch(ALL, recorder)
        recorder.wait_state({"/t/a": b"1"})


def test_certificate_of_an_unknown_ca_is_refused(tls_etcd: TlsEtcd, connect: Connect) -> None:
    """The sentence says what to check, and comes at once."""
    store = connect(tls_etcd.url, ca_file=tls_etcd.other_ca_file, timeout_s=PATIENT_S)
    with pytest.raises(Refused, match=r"is not trusted .*check the CA file"):
        store.get("/t/a")


def test_missing_client_certificate_is_told(tls_etcd: TlsEtcd, connect: Connect) -> None:
    """etcd breaks off the handshake; the sentence names the client's certificate."""
    store = connect(tls_etcd.url, ca_file=tls_etcd.ca_file, timeout_s=PATIENT_S)
    with pytest.raises(Refused, match="refused our client certificate"):
        store.get("/t/a")


def test_http_and_https_mixed_up_are_told(
    tls_etcd: TlsEtcd, shared_etcd: EmbeddedEtcd, connect: Connect
) -> None:
    """Both ways round."""
    plain = connect(tls_etcd.url.replace("https", "http"), timeout_s=PATIENT_S)
    with pytest.raises(Refused, match="speaks TLS: write https"):
        plain.get("/t/a")
    secure = connect(shared_etcd.url.replace("http", "https"), timeout_s=PATIENT_S)
    with pytest.raises(Refused, match="does not speak TLS: write http"):
        secure.get("/t/a")


def test_renewed_client_certificate_is_taken_up(tls_etcd: TlsEtcd, connect: Connect) -> None:
    """A store that was refused gets in once the files are right; no restart of ours."""
    cert, key = Path(tls_etcd.cert_file), Path(tls_etcd.key_file)
    good = cert.read_bytes(), key.read_bytes()
    cert.write_bytes(Path(tls_etcd.other_ca_file).read_bytes())
    store = connect(
        tls_etcd.url,
        ca_file=tls_etcd.ca_file,
        cert_file=str(cert),
        key_file=str(key),
        timeout_s=PATIENT_S,
    )
    with pytest.raises(ElasticdError):
        store.get("/t/a")
    cert.write_bytes(good[0])
    assert store.get("/t/a") is None


def test_user_gets_at_its_own_keys_only(auth_etcd: EtcdMember, connect: Connect) -> None:
    """Calls, leases and watches with a token; other keys are refused in one sentence."""
    store, recorder = connect(auth_etcd.url, user="alice", password="alice-pw"), Recorder()
    lease = store.grant(5.0, fail("alice"))
    store.watch(KeyRange(key="/alice/", is_prefix=True), recorder)
    recorder.wait_snapshots()
    store.commit(Txn(then=(Put(key="/alice/a", value=b"1", lease=lease.id),)))
    recorder.wait_changes(1)
    for forbidden in (lambda: put(store, "/bob/a", b""), lambda: store.list("/")):
        with pytest.raises(Refused, match="does not permit this to user 'alice'"):
            forbidden()
    lease.revoke()


def test_forbidden_watch_does_not_hold_up_others(auth_etcd: EtcdMember, connect: Connect) -> None:
    """It gets nothing, and stays out of the way."""
    store = connect(auth_etcd.url, user="alice", password="alice-pw")
    forbidden, allowed = Recorder(), Recorder()
    store.watch(KeyRange(key="/bob/", is_prefix=True), forbidden)
    store.watch(KeyRange(key="/alice/", is_prefix=True), allowed)
    allowed.wait_snapshots()
    put(store, "/alice/a", b"1")
    allowed.wait_changes(1)
    assert forbidden.events == []


def test_wrong_password_is_refused_and_not_repeated(
    auth_etcd: EtcdMember, connect: Connect
) -> None:
    """The message names the user and holds no secret."""
    store = connect(auth_etcd.url, user="alice", password="wr0ng-secret", timeout_s=PATIENT_S)
    with pytest.raises(Refused, match="refused the password of user 'alice'") as caught:
        store.get("/alice/a")
    assert "wr0ng" not in str(caught.value)


def test_missing_user_is_told(auth_etcd: EtcdMember, connect: Connect) -> None:
    """etcd says only that the user name is empty."""
    with pytest.raises(Refused, match="wants a user and a password"):
        connect(auth_etcd.url).get("/alice/a")


def test_token_that_etcd_forgot_is_renewed(auth_etcd: EtcdMember, connect: Connect) -> None:
    """A restart forgets all tokens: calls, watch and lease go on with a new one."""
    lost = threading.Event()
    store = connect(auth_etcd.url, user="alice", password="alice-pw", timeout_s=PATIENT_S)
    recorder = Recorder()
    lease = store.grant(5.0, lost.set)
    store.watch(KeyRange(key="/alice/", is_prefix=True), recorder)
    recorder.wait_snapshots()
    auth_etcd.kill()
    auth_etcd.start()
    put(store, "/alice/a", b"1")
    recorder.wait_changes(1)
    back_s = boottime_s()
    wait_until(lambda: lease.deadline_s > back_s + lease.ttl_s / 2)
    assert not lost.is_set()


def test_watch_opened_with_a_stale_stream_token_is_served(
    auth_etcd: EtcdMember, connect: Connect
) -> None:
    """The stream keeps the token it was opened with; a change of rights makes that one stale."""
    store = connect(auth_etcd.url, user="alice", password="alice-pw", timeout_s=PATIENT_S)
    first, second = Recorder(), Recorder()
    store.watch(KeyRange(key="/alice/a"), first)
    first.wait_snapshots()
    put(store, "/alice/a", b"1")
    first.wait_changes(1)
    with contextlib.closing(EtcdAdmin(auth_etcd.url)) as admin:
        admin.add_user("bob", "bob-pw", "/bob/", root=("root", "root-pw"))
    store.watch(KeyRange(key="/alice/b"), second)
    second.wait_snapshots()
    put(store, "/alice/b", b"2")
    put(store, "/alice/a", b"3")
    second.wait_changes(1)
    first.wait_changes(2)


# --- other messages ---------------------------------------------------------------------------


def test_nobody_there_is_told_with_the_addresses(connect: Connect) -> None:
    """All of them, and what to do."""
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    with pytest.raises(Unavailable, match=f"No etcd answers at {urls[0]}, {urls[1]}: start it"):
        connect(*urls, timeout_s=1.0).get("/t/a")


def test_name_that_does_not_resolve_is_told(connect: Connect) -> None:
    """The same sentence: the operator corrects the same setting."""
    with pytest.raises(Unavailable, match=r"No etcd answers at http://no-such-host\.invalid:2379"):
        connect("http://no-such-host.invalid:2379", timeout_s=1.0).get("/t/a")


def test_full_etcd_is_told_and_still_serves_leases(
    etcd_program: Path, tmp_path: Path, connect: Connect
) -> None:
    """Alarm NOSPACE: writes fail at once, reads and keepalives go on."""
    etcd = EmbeddedEtcd(tmp_path / "etcd", program=etcd_program, quota_bytes=1024 * 1024)
    with etcd:
        store, lost = connect(etcd.url, timeout_s=PATIENT_S), threading.Event()
        lease = store.grant(1.0, lost.set)
        with pytest.raises(Unavailable, match=r"is full .*NOSPACE"):
            put_without_end(store)
        first_s = lease.deadline_s
        wait_until(lambda: lease.deadline_s > first_s + lease.ttl_s / 2)
        assert store.get("/t/0") is not None
        assert not lost.is_set()
        store.close()

"""Who gets in, and the sentence that everybody else is told."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from elasticd.errors import ElasticdError, Refused, Unavailable
from elasticd.store.api import KeyRange, Put, Txn
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.fixtures.etcd import EtcdAdmin, EtcdMember, TlsEtcd
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port
from tests.fixtures.recorder import Recorder
from tests.fixtures.store import (
    ALL,
    PATIENT_S,
    Connect,
    boottime_s,
    fail,
    put,
    wait_until,
)

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
    lease = store.grant(patience_s(60.0), fail("alice"))
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
    lease = store.grant(patience_s(8.0), lost.set)
    store.watch(KeyRange(key="/alice/", is_prefix=True), recorder)
    recorder.wait_snapshots()
    auth_etcd.stop()
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
    etcd = EmbeddedEtcd(
        tmp_path / "etcd", program=etcd_program, quota_bytes=1024 * 1024, env=os.environ
    )
    with etcd:
        store, lost = connect(etcd.url, timeout_s=PATIENT_S), threading.Event()
        lease = store.grant(patience_s(6.0), lost.set)
        with pytest.raises(Refused, match=r"is full .*NOSPACE.*elasticd prune"):
            put_without_end(store)
        first_s = lease.deadline_s
        wait_until(lambda: lease.deadline_s > first_s + lease.ttl_s / 2)
        assert store.get("/t/0") is not None
        assert not lost.is_set()
        store.close()


def put_without_end(store: EtcdStore) -> None:
    for count in range(1000):
        put(store, f"/t/{count}", b"x" * 128 * 1024)

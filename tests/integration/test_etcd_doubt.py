"""Transactions whose answer got lost on the way, against a real etcd."""

from elasticd.store.api import Delete, ModifiedAt, Put, Txn, TxnResult
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.fixtures.recorder import LIMIT_S
from tests.fixtures.store import (
    PATIENT_S,
    Connect,
    commit_in_thread,
    put,
    wait_until,
)
from tests.fixtures.tcp_proxy import TcpProxy


def create(key: str, **more: tuple[Put, ...]) -> Txn:
    return Txn(
        when=(ModifiedAt(key=key, revision=0),), then=(Put(key=key, value=b"token"),), **more
    )


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

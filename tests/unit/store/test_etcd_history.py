"""How the store notices that etcd has lost its past, and what becomes of its leases then."""

import time
from dataclasses import dataclass
from threading import Event
from typing import Any, cast

import pytest

from elasticd.store.api import StoreSettings
from elasticd.store.etcd.channel import Rpc, rpc_pb2
from elasticd.store.etcd.connection import EtcdConnection
from elasticd.store.etcd.lease import LeaseKeepalive
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(30.0)


@dataclass
class Header:
    revision: int
    cluster_id: int = 1
    raft_term: int = 5


def connection() -> EtcdConnection:
    return EtcdConnection(StoreSettings(endpoints=("http://127.0.0.1:1",)))


@pytest.mark.parametrize(
    ("answer", "is_lost"),
    [
        (Header(10), False),
        (Header(9), True),
        (Header(11, cluster_id=2), True),
        # The term of one member; answers of two threads are noted in either order.
        (Header(11, raft_term=4), False),
    ],
)
def test_past_is_lost_if_less_is_there_or_another_cluster(answer: Header, is_lost: bool) -> None:
    """A backup was restored, or another etcd listens there."""
    known = connection()
    known.note(Rpc.RANGE, Header(10), 0)
    known.note(Rpc.RANGE, answer, 10)
    assert bool(known.history) is is_lost
    known.close()


def test_answer_to_an_earlier_call_may_show_less() -> None:
    """It was sent before we knew of what another thread was told since."""
    known = connection()
    known.note(Rpc.RANGE, Header(10), 0)
    known.note(Rpc.TXN, Header(9), 8)
    assert known.history == 0 and known.revision == 10
    known.close()


class Answering(EtcdConnection):
    """Grants and keeps every lease, as an etcd does whose backup has them."""

    revoked = 0

    def call(self, rpc: Rpc, request: Any, **more: Any) -> Any:
        if rpc is Rpc.LEASE_GRANT:
            return rpc_pb2.LeaseGrantResponse(ID=7, TTL=request.TTL)
        if rpc is Rpc.LEASE_KEEPALIVE:
            return rpc_pb2.LeaseKeepAliveResponse(ID=request.ID, TTL=1)
        self.revoked = cast(int, request.ID)
        return rpc_pb2.LeaseRevokeResponse()


def test_lease_of_a_holder_that_may_not_renew_it_is_not_kept_alive() -> None:
    """Its deadline stands, until it may again."""
    known, may = Answering(StoreSettings(endpoints=("http://127.0.0.1:1",))), [False]
    asked = Event()

    def may_renew() -> bool:
        asked.set()
        return may[0]

    keepalive = LeaseKeepalive(known)
    lease = keepalive.grant(1.0, lambda: None, may_renew)
    deadline_s = lease.deadline_s
    assert asked.wait(WAIT_S) and lease.deadline_s == deadline_s
    may[0] = True
    limit_s = time.monotonic() + WAIT_S
    while lease.deadline_s == deadline_s:
        assert time.monotonic() < limit_s
        time.sleep(0.01)
    known.close()
    keepalive.close()


def test_long_lease_of_a_history_that_is_lost_is_lost_at_once() -> None:
    """Its next keepalive is due in minutes; until then its workers would train on."""
    known, lost = Answering(StoreSettings(endpoints=("http://127.0.0.1:1",))), Event()
    keepalive = LeaseKeepalive(known)
    keepalive.grant(3600.0, lost.set)
    known.note(Rpc.RANGE, Header(10), 0)
    known.note(Rpc.RANGE, Header(9), 10)
    assert lost.wait(WAIT_S)
    known.close()
    keepalive.close()


def test_lease_of_a_history_that_is_lost_is_lost_with_it() -> None:
    """The restored etcd knows it; but not what was written under it since."""
    known, lost = Answering(StoreSettings(endpoints=("http://127.0.0.1:1",))), Event()
    keepalive = LeaseKeepalive(known)
    keepalive.grant(1.0, lost.set)
    known.history += 1
    assert lost.wait(WAIT_S)
    after = Event()
    lease = keepalive.grant(1.0, after.set)
    assert not after.wait(1.0), "that one is of the new history"
    assert known.revoked == lease.id
    known.close()
    keepalive.close()

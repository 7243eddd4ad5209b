"""What the search for a job's oldest members asks of etcd."""

from typing import Any

from elasticd.store.etcd.channel import Rpc, rpc_pb2
from elasticd.store.etcd.store import EtcdStore

KEYS = (b"/members/c", b"/members/a")


class RecordingConnection:
    """Answers each range with two keys, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Rpc, Any]] = []

    def call(self, rpc: Rpc, request: Any, **_: Any) -> Any:
        self.asked.append((rpc, request))
        answer = rpc_pb2.RangeResponse(header=rpc_pb2.ResponseHeader(revision=9))
        for key in KEYS:
            answer.kvs.add(key=key)
        return answer


def test_oldest_members_are_one_request_for_so_many_keys_without_their_records() -> None:
    """A job of 10,000 nodes asks this once for each, and a record has some hundred bytes."""
    connection = RecordingConnection()
    store = EtcdStore.__new__(EtcdStore)
    store._connection = connection  # type: ignore[assignment]
    assert list(store.oldest("/members/", 3)) == [key.decode() for key in KEYS]
    ((rpc, request),) = connection.asked
    assert rpc is Rpc.RANGE
    assert (request.key, request.range_end) == (b"/members/", b"/members0")
    assert (request.keys_only, request.limit, request.serializable) == (True, 3, False)
    assert request.sort_target == rpc_pb2.RangeRequest.CREATE
    assert request.sort_order == rpc_pb2.RangeRequest.ASCEND

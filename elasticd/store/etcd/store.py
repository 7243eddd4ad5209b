"""The store on a real etcd.

It is a thin front: `connection` finds a member that answers, `txn` resolves transactions whose
answer got lost, `watch` and `lease` own the two things that run in the background. The `etcd3`
package gives the messages and the stubs; its client has one endpoint, does not resume a watch and
keeps no lease alive, so it is not used.
"""

from collections.abc import Callable, Sequence

from elasticd.store.api import (
    KeyRange,
    KeyValue,
    Lease,
    StoreSettings,
    Txn,
    TxnResult,
    Watch,
    WatchSink,
    WatchSnapshot,
    always,
)
from elasticd.store.etcd.channel import Rpc
from elasticd.store.etcd.connection import EtcdConnection
from elasticd.store.etcd.key_range import range_request, snapshot
from elasticd.store.etcd.lease import LeaseKeepalive
from elasticd.store.etcd.txn import commit
from elasticd.store.etcd.watch import WatchHub
from elasticd.store.request_times import RequestTimes

__all__ = ["EtcdStore"]


class EtcdStore:
    """The `Store` on etcd. Any thread may call it."""

    def __init__(self, settings: StoreSettings) -> None:
        """Prepare the store; it connects at the first call.

        Raises: CallError: an address is not understood or a TLS file cannot be read.
        """
        self._connection = EtcdConnection(settings)
        self._watches = WatchHub(self._connection)
        self._leases = LeaseKeepalive(self._connection)

    @property
    def request_times(self) -> RequestTimes:
        """Return how long its calls took."""
        return self._connection.times

    def get(self, key: str) -> KeyValue | None:
        items = self._read(KeyRange(key=key)).items
        return items[0] if items else None

    def list(self, prefix: str) -> WatchSnapshot:
        return self._read(KeyRange(key=prefix, is_prefix=True))

    def keys(self, prefix: str) -> Sequence[str]:
        below = KeyRange(key=prefix, is_prefix=True)
        request = range_request(below, is_keys_only=True)
        answer = self._connection.call(Rpc.RANGE, request)
        return [item.key for item in snapshot(below, answer).items]

    def oldest(self, prefix: str, count: int) -> Sequence[str]:
        below = KeyRange(key=prefix, is_prefix=True)
        request = range_request(below, limit=count, is_keys_only=True, is_oldest_first=True)
        answer = self._connection.call(Rpc.RANGE, request)
        return [item.key for item in snapshot(below, answer).items]

    def commit(self, txn: Txn) -> TxnResult:
        return commit(self._connection, txn)

    def watch(self, range: KeyRange, sink: WatchSink) -> Watch:
        return self._watches.watch(range, sink)

    def grant(
        self, ttl_s: float, on_lost: Callable[[], None], may_renew: Callable[[], bool] = always
    ) -> Lease:
        return self._leases.grant(ttl_s, on_lost, may_renew)

    def close(self) -> None:
        # First the connection: that breaks off every call that the threads may be waiting in.
        self._connection.close()
        self._leases.close()
        self._watches.close()

    def _read(self, range: KeyRange) -> WatchSnapshot:
        return snapshot(range, self._connection.call(Rpc.RANGE, range_request(range)))

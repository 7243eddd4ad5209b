"""A store that writes only for as long as its holder leads.

Every transaction holds only while the term's key stands as it was put, so everything that uses the
port of a store (submitting a job, ending one) is fenced without code of its own. The operator
writes through it; the autoscaler names the term in its own transactions (autoscale/loop).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from elasticd.errors import Fenced, InvariantBroken
from elasticd.leader.election import Term, boottime_s
from elasticd.store.api import (
    KeyRange,
    KeyValue,
    Lease,
    Store,
    Txn,
    TxnResult,
    Watch,
    WatchSink,
    WatchSnapshot,
    always,
)

__all__ = ["FencedStore"]


class FencedStore:
    """A `Store` that is fenced by a term. Any thread may call it."""

    def __init__(self, store: Store, term: Term) -> None:
        self._store, self._term = store, term

    def get(self, key: str) -> KeyValue | None:
        return self._store.get(key)

    def list(self, prefix: str) -> WatchSnapshot:
        return self._store.list(prefix)

    def keys(self, prefix: str) -> Sequence[str]:
        return self._store.keys(prefix)

    def oldest(self, prefix: str, count: int) -> Sequence[str]:
        return self._store.oldest(prefix, count)

    def commit(self, txn: Txn) -> TxnResult:
        """Carry a transaction out if its conditions hold, and if the term lasts.

        Raises: Fenced: the term is over; nothing was written.
        """
        if txn.otherwise:
            raise InvariantBroken("A fenced transaction can do nothing where it is refused.")
        standing = self._term.standing
        if not self._term.leads(boottime_s()):
            raise Fenced("This process does not lead any more.")
        done = self._store.commit(replace(txn, when=(standing, *txn.when)))
        if not done.succeeded:
            item = self._store.get(standing.key)
            if item is None or item.mod_revision != standing.revision:
                raise Fenced("Another process leads now.")
        return done

    def watch(self, range: KeyRange, sink: WatchSink) -> Watch:
        return self._store.watch(range, sink)

    def grant(
        self, ttl_s: float, on_lost: Callable[[], None], may_renew: Callable[[], bool] = always
    ) -> Lease:
        return self._store.grant(ttl_s, on_lost, may_renew)

    def close(self) -> None:
        """Do nothing: the store belongs to its opener."""

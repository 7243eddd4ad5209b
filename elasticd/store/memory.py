"""The store in memory, with etcd's rules: for tests, and to look at the saved records of a job.

It has revisions, ranged compares, leases and watches that behave as etcd's do, and it has the
contract tests to prove it. Everything happens inside the calls, in the caller's thread: a watch has
its event when `commit` returns (or right after, if another thread is just delivering events). There
is no thread of its own, so a lease that nobody keeps alive ends at the next call after its time;
`tick` is such a call.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from elasticd.errors import Fenced, Refused, Unavailable
from elasticd.store.api import (
    Delete,
    KeyChange,
    KeyRange,
    KeysChanged,
    KeyValue,
    LeaseId,
    ModifiedAt,
    Op,
    Put,
    Txn,
    TxnResult,
    UnchangedSince,
    WatchSink,
    WatchSnapshot,
    always,
)
from elasticd.store.memory_lease import Grant, MemoryLease
from elasticd.store.sink import has_taken

__all__ = ["MemoryStore", "MemoryWatch"]


def _boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class MemoryWatch:
    """The `Watch` of `MemoryStore`."""

    def __init__(self, store: "MemoryStore", range: KeyRange, sink: WatchSink) -> None:
        self.range = range
        self.missed: list[KeysChanged] = []
        self.has_gap = False
        self._store = store
        self._sink = sink
        self._is_closed = False
        self._lock = threading.RLock()

    def give(self, event: WatchSnapshot | KeysChanged) -> None:
        with self._lock:
            if self._is_closed or has_taken(self._sink, event):
                return
        self._store.list_again(self, is_second=isinstance(event, WatchSnapshot))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._store.forget(self)


class MemoryStore:
    """The `Store` in memory."""

    def __init__(self, *, now_s: Callable[[], float] = _boottime_s) -> None:
        self._now_s = now_s
        self._lock = threading.RLock()
        self._revision = 1  # As an empty etcd.
        self._items: dict[str, KeyValue] = {}
        self._holders: dict[str, LeaseId] = {}
        self._grants: dict[LeaseId, Grant] = {}
        self._ended_s: dict[LeaseId, float] = {}
        self._watches: list[MemoryWatch] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._is_calling = False
        self._is_dropped = False
        self._away_since_s: float | None = None
        self._is_closed = False

    @classmethod
    def from_items(cls, items: Iterable[tuple[str, bytes]]) -> "MemoryStore":
        """Make a store that holds saved records, all written at one revision."""
        store = cls()
        # A key may have been saved twice: the later one counts.
        puts = tuple(Put(key=key, value=value) for key, value in dict(items).items())
        store.commit(Txn(then=puts))
        return store

    # --- Store --------------------------------------------------------------------------------

    def get(self, key: str) -> KeyValue | None:
        with self._lock:
            self._enter()
            item = self._items.get(key)
        self._hand_out()
        return item

    def list(self, prefix: str) -> WatchSnapshot:
        with self._lock:
            self._enter()
            snapshot = self._snapshot(KeyRange(key=prefix, is_prefix=True))
        self._hand_out()
        return snapshot

    def keys(self, prefix: str) -> Sequence[str]:
        return [item.key for item in self.list(prefix).items]

    def oldest(self, prefix: str, count: int) -> Sequence[str]:
        by_age = sorted(self.list(prefix).items, key=lambda item: (item.create_revision, item.key))
        return [item.key for item in by_age[:count]]

    def commit(self, txn: Txn) -> TxnResult:
        with self._lock:
            self._enter()
            _refuse_duplicates(txn.then)
            _refuse_duplicates(txn.otherwise)
            is_true = all(self._holds(compare) for compare in txn.when)
            self._write(txn.then if is_true else txn.otherwise)
            result = TxnResult(succeeded=is_true, revision=self._revision)
        self._hand_out()
        return result

    def watch(self, range: KeyRange, sink: WatchSink) -> MemoryWatch:
        watch = MemoryWatch(self, range, sink)
        with self._lock:
            if not self._is_closed:
                self._watches.append(watch)
                if self._is_dropped:
                    watch.has_gap = True
                else:
                    self._give(watch, self._snapshot(range))
        self._hand_out()
        return watch

    def grant(
        self, ttl_s: float, on_lost: Callable[[], None], may_renew: Callable[[], bool] = always
    ) -> MemoryLease:
        with self._lock:
            self._enter()
            lease_id = LeaseId(1 + max([0, *self._grants, *self._ended_s]))
            self._grants[lease_id] = Grant(ttl_s=ttl_s, on_lost=on_lost, may_renew=may_renew)
        self._hand_out()
        return MemoryLease(self, lease_id, ttl_s)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            watches = list(self._watches)
        for watch in watches:
            watch.close()

    # --- for tests ----------------------------------------------------------------------------

    def tick(self) -> None:
        """End the leases whose time has come."""
        with self._lock:
            self._end_due_leases()
        self._hand_out()

    def expire(self, lease_id: LeaseId) -> None:
        """End a lease as etcd does when it ran out: keys deleted, holder told."""
        self.end_lease(lease_id, is_lost=True)

    def drop_watches(self) -> None:
        """Break the stream of all watches; changes are kept back until `resume_watches`."""
        with self._lock:
            self._is_dropped = True

    def compact(self) -> None:
        """Forget old revisions: watches that are dropped cannot catch up, and begin anew."""
        with self._lock:
            for watch in self._watches if self._is_dropped else ():
                watch.missed.clear()
                watch.has_gap = True

    def resume_watches(self) -> None:
        """Resume the stream: what was missed follows, or a snapshot."""
        with self._lock:
            self._is_dropped = False
            for watch in self._watches:
                events: list[WatchSnapshot | KeysChanged] = [*watch.missed]
                for event in [self._snapshot(watch.range)] if watch.has_gap else events:
                    self._give(watch, event)
                watch.missed, watch.has_gap = [], False
        self._hand_out()

    def go_away(self) -> None:
        """Answer every call with Unavailable, and no keepalive, until `come_back`."""
        with self._lock:
            self._away_since_s = self._now_s()
            self._is_dropped = True

    def come_back(self) -> None:
        with self._lock:
            self._away_since_s = None
        self.resume_watches()

    # --- for its watches and leases -----------------------------------------------------------

    def forget(self, watch: MemoryWatch) -> None:
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def list_again(self, watch: MemoryWatch, *, is_second: bool) -> None:
        """Begin a watch anew whose sink raised: at once, or at the next change if that fails."""
        with self._lock:
            if is_second or self._is_dropped:
                watch.has_gap = True
            else:
                self._give(watch, self._snapshot(watch.range))

    def lease_deadline_s(self, lease_id: LeaseId) -> float:
        with self._lock:
            if lease_id not in self._grants:
                return self._ended_s[lease_id]
            grant = self._grants[lease_id]
            if grant.ends_s is not None:
                return grant.ends_s
            kept_s = self._now_s() if self._away_since_s is None else self._away_since_s
            return (kept_s if grant.silent_s is None else grant.silent_s) + grant.ttl_s

    def abandon_lease(self, lease_id: LeaseId) -> None:
        with self._lock:
            if lease_id in self._grants and self._grants[lease_id].ends_s is None:
                self._grants[lease_id].ends_s = self.lease_deadline_s(lease_id)

    def end_lease(self, lease_id: LeaseId, *, is_lost: bool) -> None:
        with self._lock:
            if lease_id in self._grants:
                if not is_lost:
                    self._refuse_if_away()
                grant = self._grants.pop(lease_id)
                self._ended_s[lease_id] = self._now_s()
                self._write(tuple(Delete(key=key) for key in sorted(grant.keys)))
                # A holder that has closed it does not want to hear of it.
                if is_lost and grant.ends_s is None:
                    self._calls.append(grant.on_lost)
        self._hand_out()

    # --- inside, under the lock ---------------------------------------------------------------

    def _enter(self) -> None:
        self._refuse_if_away()
        self._end_due_leases()

    def _refuse_if_away(self) -> None:
        if self._is_closed or self._away_since_s is not None:
            raise Unavailable("The store in memory is closed or was made to stay away.")

    def _end_due_leases(self) -> None:
        now_s = self._now_s()
        for lease_id, grant in list(self._grants.items()):
            is_silent = grant.ends_s is None and not grant.may_renew()
            if not is_silent:
                grant.silent_s = None
            elif grant.silent_s is None:  # 0.0 is a time of a test's clock like any other.
                grant.silent_s = now_s
            if grant.silent_s is not None and grant.silent_s + grant.ttl_s <= now_s:
                self.end_lease(lease_id, is_lost=True)
            elif grant.ends_s is not None and grant.ends_s <= now_s:
                del self._grants[lease_id]
                self._ended_s[lease_id] = grant.ends_s
                self._write(tuple(Delete(key=key) for key in sorted(grant.keys)))

    def _snapshot(self, range: KeyRange) -> WatchSnapshot:
        items = tuple(self._items[key] for key in sorted(self._items) if range.covers(key))
        return WatchSnapshot(range=range, revision=self._revision, items=items)

    def _holds(self, compare: ModifiedAt | UnchangedSince) -> bool:
        if isinstance(compare, ModifiedAt):
            item = self._items.get(compare.key)
            return (item.mod_revision if item else 0) == compare.revision
        return all(
            item.mod_revision <= compare.revision
            for key, item in self._items.items()
            if key.startswith(compare.prefix)
        )

    def _write(self, ops: tuple[Op, ...]) -> None:
        """Carry out the ops at one new revision; none if nothing changes."""
        for op in ops:
            if isinstance(op, Put) and op.lease and op.lease not in self._grants:
                raise Fenced("The store in memory no longer has our lease.")
        changes: list[KeyChange] = []
        for op in ops:
            changes += (self._put(op),) if isinstance(op, Put) else self._delete(op)
        if not changes:
            return
        self._revision += 1
        for watch in self._watches:
            seen = tuple(change for change in changes if watch.range.covers(change.key))
            if seen:
                event = KeysChanged(range=watch.range, revision=self._revision, changes=seen)
                if self._is_dropped:
                    watch.missed.append(event)
                elif watch.has_gap:
                    watch.has_gap = False
                    self._give(watch, self._snapshot(watch.range))
                else:
                    self._give(watch, event)

    def _put(self, put: Put) -> KeyChange:
        self._detach(put.key)
        old = self._items.get(put.key)
        revision = self._revision + 1
        item = KeyValue(
            key=put.key,
            value=put.value,
            mod_revision=revision,
            create_revision=old.create_revision if old else revision,
        )
        self._items[put.key] = item
        if put.lease:
            self._holders[put.key] = put.lease
            self._grants[put.lease].keys.add(put.key)
        return KeyChange(key=put.key, item=item)

    def _delete(self, delete: Delete) -> tuple[KeyChange, ...]:
        gone = [key for key in sorted(self._items) if delete.covers(key)]
        for key in gone:
            del self._items[key]
            self._detach(key)
        return tuple(KeyChange(key=key, item=None) for key in gone)

    def _detach(self, key: str) -> None:
        holder = self._holders.pop(key, None)
        if holder in self._grants:
            self._grants[holder].keys.discard(key)

    def _give(self, watch: MemoryWatch, event: WatchSnapshot | KeysChanged) -> None:
        self._calls.append(lambda: watch.give(event))

    # --- outside the lock ---------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Call sinks in the order of the revisions, one at a time, and without the lock.

        A sink may itself use the store; the outer call delivers what that causes.
        """
        while True:
            with self._lock:
                if self._is_calling or not self._calls:
                    return
                self._is_calling = True
                call = self._calls.popleft()
            try:
                call()
            finally:
                self._is_calling = False


def _refuse_duplicates(ops: tuple[Op, ...]) -> None:
    """Refuse what etcd refuses: a key put twice, or put and deleted, in one branch."""
    keys = [op.key for op in ops if isinstance(op, Put)]
    doomed = [op for op in ops if isinstance(op, Delete)]
    is_deleted = any(gone.covers(key) for gone in doomed for key in keys)
    if is_deleted or len(set(keys)) < len(keys):
        raise Refused("A transaction may write a key only once.")

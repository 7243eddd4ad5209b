"""Watches that survive failures: all of a store on one stream, each begun with a snapshot.

Two facts about a watch decide who works on it. Without a *revision* it must be listed: the lister
thread reads the range, gives the snapshot and so sets the revision. With one it must be on the
stream, from the next revision on: the reader thread keeps the stream, passes events on and advances
the revision. A thread that finds that continuity is lost clears the revision, and the watch starts
over.

Rejected: a stream per watch. It is less code, but costs a thread here and three goroutines and
buffers in etcd each, times jobs, times nodes. Rejected: to list again after every broken stream. It
would be correct, but a restart of etcd would then make every node read everything at once.
"""

import random
import threading
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import grpc

from elasticd.errors import ElasticdError, Refused
from elasticd.store.api import KeyChange, KeyRange, KeysChanged, WatchSink, WatchSnapshot
from elasticd.store.etcd.channel import Channel, Rpc, rpc_pb2
from elasticd.store.etcd.connection import EtcdConnection
from elasticd.store.etcd.key_range import bounds, item, range_request, snapshot
from elasticd.store.sink import has_taken

__all__ = ["EtcdWatch", "WatchHub"]

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class EtcdWatch:
    """The `Watch` on etcd. `WatchHub.watch` makes it."""

    def __init__(self, hub: "WatchHub", range: KeyRange, sink: WatchSink) -> None:
        self.range = range
        self.revision: int | None = None
        """All changes up to here were given to the sink; None: it must be listed (again)."""
        self.is_closed = False
        self._hub = hub
        self._sink = sink
        # Held while the sink runs, so that `close` returns after its last call. Reentrant: a sink
        # may close its own watch.
        self._lock = threading.RLock()

    def give(self, event: WatchSnapshot | KeysChanged) -> bool:
        """Give an event to the sink; return False if the sink raised, so that it must be given a
        list again.
        """
        with self._lock:
            return self.is_closed or has_taken(self._sink, event)

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
        self._hub.forget(self)


class _Stream:
    """One stream of etcd while it lasts. Guarded by the hub's lock but for reading.

    etcd answers creations in the order in which they were asked for; that, and not an id, tells
    which watch an answer is for (a refused one has no id).
    """

    def __init__(self, connection: EtcdConnection) -> None:
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._asked: deque[EtcdWatch] = deque()
        self._watches: dict[int, EtcdWatch] = {}
        self._channel, self._call = connection.open_watch(iter(self._requests.get, None))

    @property
    def channel(self) -> Channel:
        return self._channel

    def __iter__(self) -> Iterator[Any]:
        return iter(self._call)

    def create(self, watch: EtcdWatch) -> None:
        assert watch.revision is not None
        key, end = bounds(watch.range.key, is_prefix=watch.range.is_prefix)
        request = rpc_pb2.WatchCreateRequest(
            key=key, range_end=end, start_revision=watch.revision + 1
        )
        self._asked.append(watch)
        self._requests.put(rpc_pb2.WatchRequest(create_request=request))

    def created(self, watch_id: int) -> EtcdWatch:
        """Note the answer to the oldest creation, which may be a refusal."""
        watch = self._asked.popleft()
        self._watches[watch_id] = watch
        if watch.is_closed:
            self.cancel(watch)
        return watch

    def find(self, watch_id: int) -> EtcdWatch | None:
        return self._watches.get(watch_id)

    def cancelled(self, watch_id: int) -> EtcdWatch | None:
        return self._watches.pop(watch_id, None)

    def cancel(self, watch: EtcdWatch) -> None:
        for watch_id, other in list(self._watches.items()):
            if other is watch:
                del self._watches[watch_id]
                request = rpc_pb2.WatchCancelRequest(watch_id=watch_id)
                self._requests.put(rpc_pb2.WatchRequest(cancel_request=request))

    def end(self) -> None:
        self._call.cancel()
        self._requests.put(None)  # Ends gRPC's thread that sends.


class WatchHub:
    """All watches of a store, their stream and the two threads."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_listed = threading.Condition(self._lock)
        self._watches: list[EtcdWatch] = []
        self._to_list: SimpleQueue[EtcdWatch | None] = SimpleQueue()
        self._stream: _Stream | None = None
        self._history = connection.history
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def watch(self, range: KeyRange, sink: WatchSink) -> EtcdWatch:
        watch = EtcdWatch(self, range, sink)
        with self._lock:
            if self._is_closed:
                watch.is_closed = True
                return watch
            self._watches.append(watch)
            if not self._threads:
                self._threads = [
                    threading.Thread(target=self._run_lister, name="etcd-list", daemon=True),
                    threading.Thread(target=self._run_reader, name="etcd-watch", daemon=True),
                ]
                for thread in self._threads:
                    thread.start()
        self._to_list.put(watch)
        return watch

    def forget(self, watch: EtcdWatch) -> None:
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)
                if self._stream is not None:
                    self._stream.cancel(watch)

    def close(self) -> None:
        """End the threads; call it after the connection was closed, which ends its calls."""
        with self._lock:
            self._is_closed = True
            watches, self._watches = self._watches, []
            if self._stream is not None:
                self._stream.end()
            self._is_listed.notify_all()
        self._to_list.put(None)
        for watch in watches:
            watch.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    # --- the lister ---------------------------------------------------------------------------

    def _run_lister(self) -> None:
        failures = 0
        for watch in iter(self._to_list.get, None):
            if watch.is_closed or watch.revision is not None:
                continue
            revision = self._list(watch)
            if revision is None:
                # To the end of the queue: one range that is not permitted, or whose sink raises,
                # must not hold up others.
                self._to_list.put(watch)
                failures += 1
                if self._connection.wait_closing(_pause_s(failures)):
                    return
                continue
            failures = 0
            with self._lock:
                watch.revision = revision
                if self._stream is not None and not watch.is_closed:
                    self._stream.create(watch)
                self._is_listed.notify()

    def _list(self, watch: EtcdWatch) -> int | None:
        """List the watch's range and give it to the sink; return the revision of the list, None if
        that failed.
        """
        try:
            answer = self._connection.call(
                Rpc.RANGE, range_request(watch.range), is_diagnosed=False
            )
        except ElasticdError:
            return None
        return int(answer.header.revision) if watch.give(snapshot(watch.range, answer)) else None

    def _list_again(self, watch: EtcdWatch) -> None:
        with self._lock:
            watch.revision = None
        self._to_list.put(watch)

    # --- the reader ---------------------------------------------------------------------------

    def _run_reader(self) -> None:
        failures = 0
        while self._wait_until_listed():
            stream = None
            try:
                self._check_member()
                stream = self._open()
                for answer in stream:
                    failures = 0
                    stream.channel.mark_answered()
                    if not self._take(stream, answer):
                        break
            except grpc.RpcError:
                assert stream is not None
                if not self._is_closed:
                    self._connection.leave(stream.channel, is_silent=False)
            except ElasticdError:
                pass  # From the check: no member answers; try again below.
            finally:
                self._end(stream)
            failures += 1
            if self._connection.wait_closing(_pause_s(failures) if failures > 1 else 0.0):
                return

    def _wait_until_listed(self) -> bool:
        """Wait for a watch that can go on the stream; return False if the store was closed."""
        with self._lock:
            self._is_listed.wait_for(
                lambda: self._is_closed or any(w.revision is not None for w in self._watches)
            )
            return not self._is_closed

    def _check_member(self) -> None:
        """Find a member with a quorum, renew the token, and check whether etcd's past
        is the same.
        """
        with self._lock:
            listed = [watch for watch in self._watches if watch.revision is not None]
        for watch in listed:
            request = range_request(watch.range, limit=1, is_keys_only=True)
            try:
                self._connection.call(Rpc.RANGE, request, is_diagnosed=False)
                break
            except Refused:  # Perhaps no longer permitted; the lister stays at it.
                self._list_again(watch)
        if self._history != self._connection.history:
            self._history = self._connection.history
            for watch in listed:
                self._list_again(watch)

    def _open(self) -> _Stream:
        stream = _Stream(self._connection)
        with self._lock:
            self._stream = stream
            for watch in self._watches:
                if watch.revision is not None:
                    stream.create(watch)
            if self._is_closed:
                stream.end()
        return stream

    def _end(self, stream: _Stream | None) -> None:
        with self._lock:
            self._stream = None
            if stream is not None:
                stream.end()

    def _take(self, stream: _Stream, answer: Any) -> bool:
        """Pass one answer on; return False if the stream is of no more use."""
        with self._lock:
            watch = stream.created(answer.watch_id) if answer.created else None
            if answer.canceled:
                watch = stream.cancelled(answer.watch_id) or watch
            elif not answer.created:
                watch = stream.find(answer.watch_id)
        if watch is None or watch.is_closed:
            return True
        if answer.canceled:
            self._list_again(watch)
            # Refused at once: not permitted, or the token that the stream was opened with is
            # stale; only a new stream brings a new one. Otherwise it was compacted away.
            return not answer.created
        if not self._pass_on(watch, answer.events):
            with self._lock:
                stream.cancel(watch)
            self._list_again(watch)
        return True

    def _pass_on(self, watch: EtcdWatch, events: Any) -> bool:
        """Give the watch the events that are new to it; return False if it could not take them."""
        # A revision is never parted over two answers (we do not ask for fragments), and what was
        # seen is not given again. The header's revision may run ahead of the events: not used.
        seen = watch.revision
        if seen is None:
            return True
        fresh = [event for event in events if event.kv.mod_revision > seen]
        if not fresh:
            return True
        revision = int(fresh[-1].kv.mod_revision)
        changes = tuple(
            KeyChange(
                key=event.kv.key.decode("utf-8", "replace"),
                item=None if event.type == event.DELETE else item(event.kv),
            )
            for event in fresh
        )
        if not watch.give(KeysChanged(range=watch.range, revision=revision, changes=changes)):
            return False
        watch.revision = revision
        return True


def _pause_s(failures: int) -> float:
    longest_s = min(_FIRST_PAUSE_S * 2.0 ** min(failures, 10), _LONGEST_PAUSE_S)
    return longest_s * random.uniform(0.2, 1.0)  # noqa: S311

"""Lists and watches one kind, in a thread of its own, until the watch is closed.

Every connection is requested with an end, and the client closes it if it stays silent after that
end. So a connection that hangs is found within a minute, and one that never begins within the
time-out of a request. Then the watch lists all objects again, since it may have missed changes; it
does so also after an error in place of a change. A connection that ends in order, or in the middle
of a line, is continued from the version of the last whole line or the last bookmark. After each
failure the watch waits longer, and the waits have a random part, so that clients do not retry
together.
"""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import urllib3

from elasticd.errors import ElasticdError
from elasticd.kube.api.backoff import Backoff
from elasticd.kube.api.connection import ApiServerConnection
from elasticd.kube.api.failure import Busy, Gone
from elasticd.kube.api.port import Changed, ResourceKind, ResourceList, WatchSink
from elasticd.kube.api.stream import WatchLines, WatchProgress
from elasticd.store.sink import has_taken
from elasticd.telemetry.log import get_logger

__all__ = ["KubernetesWatch", "WatchTimes"]

CHUNK_BYTES = 1 << 16
CLOSE_S = 2.0

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTimes:
    """The times of a watch, in seconds."""

    connection_s: tuple[float, float] = (30.0, 45.0)
    """The range from which the duration of a watch's connection is drawn; the API server ends it
    then."""
    silence_s: float = 5.0
    """A connection counts as dead if it is silent for this time after its end was due."""
    resync_s: float = 600.0
    """All objects are listed again after this time, even if the watch reported no problem."""
    short_s: float = 1.0
    """A connection that ends sooner counts as a failure, so that a server that closes connections
    does not get the next request at once."""


class KubernetesWatch:
    """The real `ObjectWatch`."""

    def __init__(
        self,
        connection: ApiServerConnection,
        kind: ResourceKind,
        sink: WatchSink,
        *,
        namespace: str,
        labels: str,
        list_all: Callable[[], ResourceList],
        times: WatchTimes,
        backoff: Backoff | None = None,
    ) -> None:
        self.trouble = ""
        self._connection, self._kind, self._sink = connection, kind, sink
        self._namespace, self._labels, self._list_all = namespace, labels, list_all
        self._times, self._backoff = times, backoff or Backoff()
        self._lock = threading.RLock()
        self._is_closed = threading.Event()
        self._answer: urllib3.BaseHTTPResponse | None = None
        self._version: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind.plural}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._is_closed.set()
            _hang_up(self._answer)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    # --- private ------------------------------------------------------------------------------

    def _run(self) -> None:
        listed_s = 0.0
        while not self._is_closed.is_set():
            began_s = time.monotonic()
            pause_s = 0.0
            try:
                if self._version is None or began_s >= listed_s + self._times.resync_s:
                    listed = self._list_all()
                    listed_s = time.monotonic()
                    self._version = listed.version if self._give(listed) else None
                    self.trouble = ""
                if self._version is not None:
                    self._follow(self._version)
                if self._version is None or time.monotonic() < began_s + self._times.short_s:
                    pause_s = self._backoff.next_s()
                else:
                    self._backoff.reset()
            except Gone:
                self._version = None
                # If a server calls its own newest version too old, the watch must not list in a
                # tight loop.
                is_overdue = time.monotonic() > began_s + self._times.short_s
                pause_s = 0.0 if is_overdue else self._backoff.next_s()
            except ElasticdError as exc:
                self.trouble = str(exc)
                pause_s = self._backoff.next_s(exc.retry_after_s if isinstance(exc, Busy) else 0.0)
            except Exception:  # A bug of ours: if this thread ended, nobody would notice.
                log.exception("watch.failed", kind=self._kind.resource)
                self._version = None
                self.trouble = (
                    f"What the API server said of {self._kind.resource} was not understood."
                )
                pause_s = self._backoff.next_s()
            self._is_closed.wait(pause_s)

    def _follow(self, version: str) -> None:
        """Pass one connection's events on until it ends, and keep the version of the last one.

        Raises: ElasticdError: the API server refuses the watch.
        """
        times = self._times
        lasts_s = random.uniform(*times.connection_s)  # noqa: S311
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(lasts_s))),
            "labelSelector": self._labels,
        }
        path = self._kind.path(namespace=self._namespace)
        lines = WatchLines(self._kind, self._connection.host)
        stream = self._connection.stream(
            path,
            query,
            what=f"watch {self._kind.resource}",
            silence_s=lasts_s + times.silence_s,
        )
        with stream as answer:
            if not self._holds(answer):
                return
            self.trouble = ""
            try:
                for data in answer.stream(CHUNK_BYTES):
                    for progress in self._read(lines, data):
                        if progress.change is not None and not self._give(progress.change):
                            self._version = None
                            return
                        self._version = progress.version
                        self._backoff.reset()
            except urllib3.exceptions.ReadTimeoutError:
                self._version = None  # Silent beyond its end: changes may have been missed.
            except (urllib3.exceptions.HTTPError, OSError):
                pass  # Cut off, perhaps within a line: the watch goes on from the last whole line.
            finally:
                with self._lock:
                    self._answer = None
                answer.close()

    def _read(self, lines: WatchLines, data: bytes) -> Iterator[WatchProgress]:
        """Yield the events; if there is an error instead of one, all objects are listed again.

        An API server that cannot tell a change would fail at that change each time.

        Raises: ElasticdError: the errors that `WatchLines.feed` lists.
        """
        try:
            yield from lines.feed(data)
        except ElasticdError:
            self._version = None
            raise

    def _holds(self, answer: urllib3.BaseHTTPResponse) -> bool:
        """Register the connection for `close`; return False if the watch was closed already."""
        with self._lock:
            self._answer = answer
            return not self._is_closed.is_set()

    def _give(self, event: ResourceList | Changed) -> bool:
        """Give an event to the sink, unless the watch was closed; return False if that raised."""
        with self._lock:
            return self._is_closed.is_set() or has_taken(self._sink, event)


def _hang_up(answer: urllib3.BaseHTTPResponse | None) -> None:
    """Wake the reader of a connection; to close the descriptor alone would not wake it."""
    connection = getattr(answer, "connection", None)
    with suppress(OSError, AttributeError, ValueError):
        if connection is not None and connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)

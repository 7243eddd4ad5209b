"""The agent's end of its workers' connections: one socket for all workers of all its jobs.

The socket is abstract, so no file is left behind and none has to be cleared away; any process of
the machine can connect to it, so the kernel's record of who did (SO_PEERCRED) decides: only
processes of this user may, and of these only workers that the agent knows. A worker may connect
before the pool's report of its start has arrived, hence an unknown process is kept waiting for a
moment. A child that a worker forked has a number of its own and does not pass for it.
"""

import os
import secrets
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import TypeAlias

from elasticd.channel.wire import pack
from elasticd.channel.worker import Attached, FromWorker, Progressed, ToWorker, unpack_from_worker
from elasticd.errors import InvariantBroken
from elasticd.net.framing import LineReader
from elasticd.net.peer import peer_of
from elasticd.net.socket_selector import SocketSelector
from elasticd.records.ids import Life
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s

__all__ = ["WorkerSockets", "OnWorkerMessage"]

STRANGER_TIMEOUT_S = 2.0
"""The pool's word of a start takes milliseconds, seconds on a machine under heavy load."""
STRANGERS_LIMIT = 64
BACKLOG_LIMIT_BYTES = 4_000_000
"""A message is a few hundred bytes: whoever lets so much lie does not read any more."""
LINE_LIMIT_BYTES = 1_000_000
"""The longest is Stacks, of some hundred threads."""
_CHUNK_BYTES = 65_536
_BACKLOG = 1024
_CLOSE_TIMEOUT_S = 2.0

OnWorkerMessage: TypeAlias = Callable[[int, FromWorker | None], None]

log = get_logger()


@dataclass(slots=True, eq=False, kw_only=True)
class _WorkerSocket:
    """One connection; `out` and `is_doomed` belong to the lock, the rest to the thread."""

    sock: socket.socket
    pid: int
    until_s: float
    """A stranger is closed then."""
    reader: LineReader = field(default_factory=lambda: LineReader(LINE_LIMIT_BYTES))
    out: bytearray = field(default_factory=bytearray)
    is_writing: bool = False
    is_attached: bool = False
    is_doomed: bool = False
    is_closed: bool = False


class WorkerSockets:
    """The listening socket and all connections, in one thread.

    That thread calls `on_message` with each message, and at last with None, when the connection has
    ended. It does so for a process number only between `allow` and `forget`, and Attached comes
    first. A script of restart mode that reports its progress never attaches, so its end is not
    reported. The thread also calls `tick`, each time after it has read everything that had come:
    so the hang detector, which counts silence, never takes unread messages for silence. `tick`
    returns in how many seconds it wants to be called again; None for after the next message. A call
    of `request_tick` has it called sooner.
    """

    def __init__(
        self,
        life: Life,
        on_message: OnWorkerMessage,
        *,
        tick: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.name = f"elasticd-{life}-{secrets.token_hex(8)}"
        """The name of the abstract socket, without the zero byte at its begin."""
        self._on_message, self._tick = on_message, tick
        self._tick_at_s: float | None = None
        self._has_heard = self._is_tick_requested = False
        self._lock = Lock()
        self._allowed: set[int] = set()
        self._attached: dict[int, _WorkerSocket] = {}
        self._open: set[_WorkerSocket] = set()
        """All of known workers."""
        self._strangers: dict[int, _WorkerSocket] = {}
        """Not read from; the longest waiting first."""
        self._is_closing = False
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("\0" + self.name)
        listener.listen(_BACKLOG)
        self._selector: SocketSelector[_WorkerSocket] = SocketSelector(listener)
        self._thread = Thread(target=self._run, name="attachments", daemon=True)
        self._thread.start()

    # --- from any thread ----------------------------------------------------------------------

    def allow(self, pid: int) -> None:
        """This process is a worker: hear it, also if it connected a moment ago."""
        with self._lock:
            self._allowed.add(pid)
        self._selector.wake()

    def request_tick(self) -> None:
        """Have `tick` called soon, also if nothing is heard."""
        with self._lock:
            self._is_tick_requested = True
        self._selector.wake()

    def forget(self, pid: int) -> None:
        """Drop a worker's further messages; messages that `on_message` already got may still
        be on their way.
        """
        with self._lock:
            self._allowed.discard(pid)
            link = self._attached.pop(pid, None)
            if link is not None:
                link.is_doomed = True
        self._selector.wake()

    def send(self, pid: int, message: ToWorker) -> None:
        """Send a message; never waits. One to a worker that is not attached is dropped."""
        line = pack(message)
        with self._lock:
            link = self._attached.get(pid)
            if link is None or link.is_doomed or self._is_closing:
                return
            if not link.out:
                # Straight away: a change of world need not wait for another thread's turn.
                line = line[_send(link.sock, line) :]
            if not line:
                return
            link.out += line
            link.is_doomed = len(link.out) > BACKLOG_LIMIT_BYTES
        self._selector.wake()

    def close(self) -> None:
        """End all connections; nothing is heard or sent any more."""
        with self._lock:
            self._is_closing = True
        self._selector.wake()
        self._thread.join(_CLOSE_TIMEOUT_S)

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing:
            self._selector.serve(self._timeout_s(), self._accept, self._serve)
            self._admit()
            self._sweep()
            self._tick_if_due()
        with self._lock:
            self._attached.clear()
        for link in self._strangers.values():
            link.sock.close()
        self._selector.close()

    def _timeout_s(self) -> float | None:
        times = [link.until_s for link in self._strangers.values()]
        times += [self._tick_at_s] if self._tick_at_s is not None else []
        return max(0.0, min(times) - now_s()) if times else None

    def _accept(self, sock: socket.socket) -> None:
        pid, uid = peer_of(sock)
        if uid != os.geteuid() or pid <= 0:
            sock.close()
            return
        # A process has one connection that says nothing yet, the newest: that bounds them all.
        for link in [link for link in self._open if link.pid == pid and not link.is_attached]:
            self._drop(link)
        if pid in self._strangers:
            self._strangers.pop(pid).sock.close()
        self._strangers[pid] = _WorkerSocket(
            sock=sock, pid=pid, until_s=now_s() + STRANGER_TIMEOUT_S
        )
        if len(self._strangers) > STRANGERS_LIMIT:
            # If the one that waits longest were a worker, its start would be known by now.
            self._strangers.pop(next(iter(self._strangers))).sock.close()

    def _admit(self) -> None:
        """Take in strangers that are known by now, close those that waited too long."""
        if not self._strangers:
            return
        with self._lock:
            known = self._allowed & self._strangers.keys()
        for pid in known:
            link = self._strangers.pop(pid)
            self._open.add(link)
            self._selector.register(link.sock, link)
        at_s = now_s()
        for link in [link for link in self._strangers.values() if link.until_s <= at_s]:
            log.debug("attachment.refused", pid=link.pid)
            self._strangers.pop(link.pid).sock.close()

    def _sweep(self) -> None:
        """Drop what others doomed or forgot, and see to what they could not send at once."""
        with self._lock:
            gone = [k for k in self._open if k.is_doomed or k.pid not in self._allowed]
            stuck = [k for k in self._open if k.out and not k.is_writing and not k.is_doomed]
        for link in gone:
            is_deaf = len(link.out) > BACKLOG_LIMIT_BYTES
            self._drop(link, "It does not read what it is told." if is_deaf else "")
        for link in stuck:
            link.is_writing = True
            self._selector.watch_writing(link.sock, link, is_wanted=True)

    def _tick_if_due(self) -> None:
        has_heard, self._has_heard = self._has_heard, False
        with self._lock:
            is_requested, self._is_tick_requested = self._is_tick_requested, False
        at_s = now_s()
        if is_requested or (has_heard if self._tick_at_s is None else self._tick_at_s <= at_s):
            pause_s = self._tick()
            self._tick_at_s = None if pause_s is None else at_s + pause_s

    def _serve(self, link: _WorkerSocket, mask: int) -> None:
        if mask & selectors.EVENT_WRITE and not link.is_closed:
            self._write(link)
        if mask & selectors.EVENT_READ and not link.is_closed:
            self._read(link)

    def _write(self, link: _WorkerSocket) -> None:
        with self._lock:
            del link.out[: _send(link.sock, bytes(link.out[:_CHUNK_BYTES]))]
            if link.out:
                return
        link.is_writing = False
        self._selector.watch_writing(link.sock, link, is_wanted=False)

    def _read(self, link: _WorkerSocket) -> None:
        if link.is_doomed:
            return
        try:
            heard = link.sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._drop(link)
            return
        link.reader.feed(heard)
        for line in link.reader.lines():
            self._take(link, line)
            if link.is_closed or link.is_doomed or self._is_closing:
                return
        if link.reader.is_too_long:
            self._drop(link, "It sent a line without an end.")

    def _take(self, link: _WorkerSocket, line: bytes) -> None:
        message = _message_of(line)
        if message is None:
            self._drop(link, "It sent what is no message.")
        elif isinstance(message, Progressed) and not link.is_attached:
            self._has_heard = True
            self._on_message(link.pid, message)
        elif isinstance(message, Attached) == link.is_attached:
            self._drop(link, "It did not say Attached, once and first.")
        else:
            if not link.is_attached and not self._attach(link):
                return
            self._has_heard = True
            self._on_message(link.pid, message)

    def _attach(self, link: _WorkerSocket) -> bool:
        """Make this socket its process's connection; False if the process is not known any more."""
        before = self._attached.get(link.pid)
        if before is not None:
            self._drop(before, "Its process connected anew.")
        with self._lock:
            link.is_attached = link.pid in self._allowed
            if link.is_attached:
                self._attached[link.pid] = link
        return link.is_attached

    def _drop(self, link: _WorkerSocket, why: str = "") -> None:
        """Close a socket; `why` is our reason, and is empty if the worker closed it."""
        with self._lock:
            link.is_closed = True
            is_current = self._attached.get(link.pid) is link
            if is_current:
                del self._attached[link.pid]
        self._open.discard(link)
        self._selector.unregister(link.sock)
        link.sock.close()
        if why and (is_current or not link.is_attached):
            log.warning("attachment.dropped", pid=link.pid, why=why)
        if is_current and not self._is_closing:
            self._has_heard = True
            self._on_message(link.pid, None)


def _send(sock: socket.socket, data: bytes) -> int:
    """How much of it is off our hands; all, if the connection is broken: its end is heard."""
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0
    except OSError:
        return len(data)


def _message_of(line: bytes) -> FromWorker | None:
    if len(line) > LINE_LIMIT_BYTES:
        return None
    try:
        return unpack_from_worker(line)
    except (InvariantBroken, RecursionError, OverflowError):
        return None

"""A writer's connections to workers; the agent owns the listening socket, which outlives it.

Each connection comes from one rank 0 of one generation. Connections are read ten times a second: a
wake-up for each step would take CPU time from training much more often.
"""

import os
import selectors
import socket
import time
from contextlib import suppress
from threading import Event, Lock, Thread

from elasticd.net.peer import peer_of
from elasticd.telemetry.log import get_logger
from elasticd.tensorboard.message import Begin, unpack
from elasticd.tensorboard.writer.buffer import Buffer, FilePart

__all__ = ["Connections"]

LOOK_S = 0.1
DRAIN_S = 2.0
"""The time limit in seconds to read the bytes that ended workers have left in their sockets."""
CHUNK_BYTES = 1 << 20

log = get_logger()


class _Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.heard = bytearray()
        self.part: FilePart | None = None


class Connections:
    """The thread that reads all connections; any thread may call `tell`."""

    def __init__(self, listener: socket.socket, buffer: Buffer) -> None:
        self._listener, self._buffer = listener, buffer
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._lock = Lock()
        self._open: dict[socket.socket, _Connection] = {}
        self._told: list[bytes] = []
        """Sentences for which no worker was connected."""
        self._closing = Event()
        self._thread = Thread(target=self._run, name="hearing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tell(self, sentence: str) -> None:
        """Send a sentence to the workers, or to the next worker that connects."""
        line = " ".join(sentence.split()).encode() + b"\n"
        log.warning("events.told", why=sentence)
        with self._lock:
            if not self._open:
                self._told.append(line)
            for sock in self._open:
                with suppress(OSError):
                    sock.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Read all bytes that were sent, and close the connections."""
        self._closing.set()
        self._thread.join(DRAIN_S + 1.0)

    def _run(self) -> None:
        until_s = None
        while True:
            is_closing = self._closing.is_set()
            if is_closing and until_s is None:
                until_s = time.monotonic() + DRAIN_S
            ready = self._selector.select(0 if is_closing else 1.0)
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._read(key.data)
            if until_s is not None and (
                (not ready and not self._open) or time.monotonic() > until_s
            ):
                break
            self._closing.wait(LOOK_S) if not is_closing else time.sleep(0.001)
        for connection in list(self._open.values()):
            self._drop(connection)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if peer_of(sock).uid != os.geteuid():
            sock.close()
            return
        sock.setblocking(False)
        connection = _Connection(sock)
        with self._lock:
            self._open[sock] = connection
            told, self._told = self._told, []
        for line in told:
            with suppress(OSError):
                sock.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        try:
            heard = connection.sock.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._drop(connection)
            return
        connection.heard += heard
        try:
            for message in unpack(connection.heard):
                if isinstance(message, Begin):
                    if connection.part is not None:
                        self._buffer.end(connection.part)
                    connection.part = self._buffer.begin(message.generation, message.step)
                elif connection.part is None:
                    raise ValueError("a step before the beginning")
                else:
                    self._buffer.take(connection.part, message)
        except ValueError as exc:
            log.warning("connection.dropped", why=str(exc))
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        with self._lock:
            self._open.pop(connection.sock, None)
        self._selector.unregister(connection.sock)
        connection.sock.close()
        if connection.part is not None:
            self._buffer.end(connection.part)

"""The connection to one fork server, with a thread of its own that sees it begin and end.

The thread starts the server, because the kernel's parent-death signal depends on the thread. It
also ends a server that hangs, so that a caller who gives the server up need not wait.
"""

import array
import os
import select
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread

from elasticd.channel.fork_server import (
    PACKET_BYTES,
    FromServer,
    ServerFailed,
    ServerReady,
    unpack_from_server,
)
from elasticd.errors import InvariantBroken
from elasticd.telemetry.log import get_logger

__all__ = ["ForkServerConnection", "Reach"]

READY_LIMIT_S = 60.0
"""How long the imports may take: where torch lies on a slow disk, minutes of them help nobody."""

ANSWER_LIMIT_S = 2.0
"""How long an answer may take; a fork of a process with torch takes some ten milliseconds."""

_WANTED_TICK_S = 0.1
"""How often a thread that waits for the imports looks whether anybody still wants them."""

_KILL_LIMIT_S = 1.0
_END_LIMIT_S = 3.0
"""How long to wait for the end of a server and of what comes to us from it."""

Reach = Callable[[], tuple[socket.socket, subprocess.Popen[bytes] | None]]
"""Returns a connection, and the server's process if that is ours to end."""

log = get_logger()


class ForkServerConnection:
    """One server, from its start until it has ended or is given up. Any thread may use it."""

    def __init__(self, reach: Reach, ended: Callable[[int], None]) -> None:
        """`reach` is called on the connection's thread, and `ended` with a process that is over.

        Raises: RuntimeError: the system gives no thread.
        """
        self.why = ""
        """Why no pool can be forked."""
        self.is_hopeless = False
        """True if another server of this kind would be of no use either."""
        self._reach, self._ended = reach, ended
        self._asking = Lock()
        self._closing = Lock()
        self._socket: socket.socket | None = None
        self._is_given_up = self._is_ready = False
        self._has_started = Event()
        self._thread = Thread(target=self._run, name="fork-server", daemon=True)
        self._thread.start()

    def wait_ready(self, is_wanted: Callable[[], bool]) -> bool:
        """Wait until the server has imported torch; False if it cannot or nobody wants it."""
        while not self._has_started.wait(_WANTED_TICK_S):
            if not is_wanted():
                return False
        return self._is_ready

    def ask(self, packet: bytes, fds: Sequence[int] = ()) -> tuple[FromServer, list[int]]:
        """Send one packet with these descriptors; return the answer and its descriptors.

        Raises: OSError, InvariantBroken: this server cannot be used any more.
        """
        with self._asking:
            try:
                return self._answer(packet, fds)
            except (OSError, InvariantBroken):
                # Before another asks: it would take the answer that comes late for its own.
                self.give_up()
                raise

    def give_up(self) -> None:
        """End the fork server, if this agent started it; do not wait for its end."""
        with self._closing:
            self._is_given_up = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the fork server, and wait for its end, unless no signal ends it."""
        self.give_up()
        self._thread.join(_END_LIMIT_S)

    def _answer(self, packet: bytes, fds: Sequence[int]) -> tuple[FromServer, list[int]]:
        connection = self._socket
        if connection is None:
            raise ConnectionError("it has ended")
        with_it = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        connection.sendmsg([packet], with_it, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        if not _has_packet(connection, ANSWER_LIMIT_S):
            raise TimeoutError("it does not answer")
        return _read(connection)

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            connection, process = self._reach()
            with self._closing:
                self._socket = connection
                is_given_up = self._is_given_up
            if not is_given_up:
                self._is_ready = self._has_become_ready(connection)
        except (OSError, ValueError) as exc:
            self.why = f"{type(exc).__name__}: {exc}"
            return
        finally:
            self._has_started.set()
        if self._is_ready:
            _wait_for_hang_up(connection)
        self._hang_up(connection)
        if process is not None:
            self._end(process)

    def _has_become_ready(self, connection: socket.socket) -> bool:
        try:
            if not _has_packet(connection, READY_LIMIT_S):
                self.is_hopeless = True
                raise TimeoutError(f"it has not imported torch within {READY_LIMIT_S:.0f} s")
            message, _ = _read(connection)
        except (OSError, InvariantBroken) as exc:
            self.why = f"{type(exc).__name__}: {exc}"
            return False
        if isinstance(message, ServerFailed):
            self.is_hopeless, self.why = True, message.why
        elif not isinstance(message, ServerReady):
            self.why = f"it begins with {message}"
        return isinstance(message, ServerReady)

    def _hang_up(self, connection: socket.socket) -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # Whoever asks just now hears it at once.
        with self._asking, self._closing:
            self._socket = None
            connection.close()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the server: it guards nothing, and may be stopped or in an import that hangs."""
        process.kill()
        try:
            process.wait(_KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            log.warning("fork_server.not_ended", pid=process.pid)
        self._ended(process.pid)


def _wait_for_hang_up(connection: socket.socket) -> None:
    """Wait until either side has ended the connection; drop the bytes that are read meanwhile."""
    poll = select.poll()
    poll.register(connection, 0)
    poll.poll()


def _has_packet(connection: socket.socket, limit_s: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * limit_s))


def _read(connection: socket.socket) -> tuple[FromServer, list[int]]:
    packet, fds, _, _ = socket.recv_fds(connection, PACKET_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    if not packet:
        raise ConnectionError("it has ended")
    try:
        return unpack_from_server(packet), fds
    except InvariantBroken:
        for fd in fds:
            os.close(fd)
        raise

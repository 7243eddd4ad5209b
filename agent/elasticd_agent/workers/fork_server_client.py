"""The agent's way to a fork server: its own, started for its first job, or one of this machine.

Whatever is wrong with a server, the agent starts its pools as programs of their own, which costs
the time to import torch and nothing else.
"""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread

from elasticd.channel.fork_server import (
    BURY,
    FORK,
    PACKET_BYTES,
    Buried,
    ForkOrder,
    ForkRefused,
    FromServer,
    PoolForked,
    ServerFailed,
    ServerReady,
    unpack_from_server,
)
from elasticd.channel.wire import pack
from elasticd.errors import InvariantBroken
from elasticd.telemetry.log import get_logger, open_log
from elasticd_agent.loop.open_file_limit import give_first_limit
from elasticd_agent.pod.orphans import Children

__all__ = ["ForkServerClient", "ForkedPool"]

ANSWER_LIMIT_S = 2.0
"""How long an answer may take; a fork of a process with torch takes some ten milliseconds."""
READY_TICK_S = 0.1
"""How often a thread that waits for the imports looks whether anybody still wants them."""

log = get_logger()


class ForkedPool:
    """A pool that is a child of the fork server; has what `WarmPool` uses of a Popen."""

    def __init__(self, pid: int, pid_fd: int, bury: Callable[[int], None]) -> None:
        self.pid = pid
        self._pid_fd, self._bury = pid_fd, bury
        self._is_over = False

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Wait for its end, and that nothing is left of what it guarded.

        Raises: TimeoutExpired: it has not ended within so many seconds.
        """
        if self._is_over:
            return
        poll = select.poll()
        poll.register(self._pid_fd, select.POLLIN)
        if not poll.poll(1000 * timeout):
            raise subprocess.TimeoutExpired(f"pool {self.pid}", timeout)
        self._is_over = True
        self._bury(self.pid)
        os.close(self._pid_fd)

    def _send(self, number: signal.Signals) -> None:
        if not self._is_over:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pid_fd, number)


class ForkServerClient:
    """Has pools forked. Of any thread; one speaks with the server at a time."""

    def __init__(
        self, *, children: Children, env: Mapping[str, str], log_path: Path, path: str = ""
    ) -> None:
        """`path` names the socket of a server that others have started; empty: start our own, with
        this environment and a log there, when the first pool is wanted."""
        self._children, self._env, self._log_path, self._path = children, dict(env), log_path, path
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._is_ready = self._is_useless = False

    def fork(
        self, order: ForkOrder, agent_fd: int, log_fd: int, is_wanted: Callable[[], bool]
    ) -> ForkedPool | None:
        """Have a pool forked whose end of the agent's connection is `agent_fd`.

        None means that it must be started as a program, or that nobody wants it any more.
        """
        while not self._lock.acquire(timeout=READY_TICK_S):
            if not is_wanted():
                return None
        try:
            if self._is_useless or not self._has_server(is_wanted):
                return None
            return self._ask_for_pool(order, agent_fd, log_fd)
        except (OSError, InvariantBroken) as exc:
            self._give_up(f"{type(exc).__name__}: {exc}")
            return None
        finally:
            self._lock.release()

    def close(self) -> None:
        """End our own server; its pools go on until their connections end."""
        self._is_useless = True
        self._hang_up()

    # --- private ------------------------------------------------------------------------------

    def _has_server(self, is_wanted: Callable[[], bool]) -> bool:
        """Connect to a server, and wait until it has imported torch."""
        if self._socket is None:
            self._is_ready = False
            self._socket = self._connect() if self._path else self._start()
        while not self._is_ready:
            if not is_wanted():
                return False
            if not _has_packet(self._socket, READY_TICK_S):
                continue
            match self._read()[0]:
                case ServerReady():
                    self._is_ready = True
                case ServerFailed(why=why):
                    self._is_useless = True
                    self._give_up(why)
                    return False
        return True

    def _connect(self) -> socket.socket:
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            ours.connect(self._path)
        except OSError:
            ours.close()
            raise
        return ours

    def _start(self) -> socket.socket:
        """Start our own server from a thread that lives as long as it: the kernel's word that a
        parent died goes by thread.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        started = Event()
        Thread(target=self._keep, args=(theirs, started), name="fork-server", daemon=True).start()
        started.wait()
        return ours

    def _keep(self, theirs: socket.socket, started: Event) -> None:
        """Thread: start the server, and reap it."""
        command = [sys.executable, "-u", "-m", "elasticd_agent.pool.fork_server", "--fd"]
        try:
            with theirs, open_log(self._log_path) as file:
                process = self._children.start(
                    lambda: subprocess.Popen(
                        [*command, str(theirs.fileno())],
                        env=self._env,
                        cwd="/",
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,
                    )
                )
        except (OSError, ValueError):
            return  # Its end of the connection is closed, which says it all.
        finally:
            started.set()
        give_first_limit(process.pid)
        process.wait()
        self._children.forget(process.pid)

    def _ask_for_pool(self, order: ForkOrder, agent_fd: int, log_fd: int) -> ForkedPool | None:
        assert self._socket is not None
        order_fd = os.memfd_create("order")
        try:
            _write(order_fd, pack(order))
            socket.send_fds(self._socket, [FORK], [order_fd, agent_fd, log_fd])
        finally:
            os.close(order_fd)
        match self._answer():
            case PoolForked(pid=pid), [pid_fd]:
                # It becomes our child if the server ends.
                self._children.adopt(pid)
                give_first_limit(pid)
                return ForkedPool(pid, pid_fd, self._bury)
            case ForkRefused(why=why, is_stale=is_stale), _:
                log.info("pool.not_forked", job=order.job, why=why)
                if is_stale and not self._path:
                    self._hang_up()  # The next one is forked from a server that is true.
                return None
            case other:
                raise InvariantBroken(f"The fork server answers {other}.")

    def _bury(self, pid: int) -> None:
        """Return when nothing is left of a pool that has ended, as far as the server can tell."""
        with self._lock:
            if self._socket is None:
                return  # It was our child, and so is what it has left behind.
            try:
                self._socket.send(BURY + b"%d" % pid, socket.MSG_NOSIGNAL)
                answer, _ = self._answer()
                if not isinstance(answer, Buried):
                    raise InvariantBroken(f"The fork server answers {answer}.")
            except (OSError, InvariantBroken) as exc:
                self._give_up(f"{type(exc).__name__}: {exc}")

    def _answer(self) -> tuple[FromServer, list[int]]:
        assert self._socket is not None
        if not _has_packet(self._socket, ANSWER_LIMIT_S):
            raise TimeoutError("it does not answer")
        return self._read()

    def _read(self) -> tuple[FromServer, list[int]]:
        assert self._socket is not None
        packet, fds, _, _ = socket.recv_fds(self._socket, PACKET_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            raise ConnectionError("it has ended")
        return unpack_from_server(packet), fds

    def _give_up(self, why: str) -> None:
        """Do without this server. Our own is started anew for the next pool, others' is not."""
        log.warning("fork_server.given_up", why=why)
        self._is_useless |= bool(self._path)
        self._hang_up()

    def _hang_up(self) -> None:
        ours, self._socket = self._socket, None
        if ours is not None:
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
            ours.close()


def _has_packet(connection: socket.socket, limit_s: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * limit_s))


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]

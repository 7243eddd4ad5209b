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
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock

from elasticd.channel.fork_server import (
    FORK,
    REAP,
    Buried,
    ForkOrder,
    ForkRefused,
    PoolForked,
)
from elasticd.channel.wire import pack
from elasticd.errors import InvariantBroken
from elasticd.net.peer import peer_of
from elasticd.telemetry.log import get_logger, open_log
from elasticd_agent.loop.open_file_limit import first_limit, give_first_limit
from elasticd_agent.pod.orphans import Children
from elasticd_agent.pool.process.effective_user import child_gid, child_uid
from elasticd_agent.workers.fork_server_connection import ForkServerConnection

__all__ = ["ForkServerClient", "ForkedPool", "limit_arguments"]

_CONNECT_LIMIT_S = 2.0

log = get_logger()


class ForkedPool:
    """A pool that is a child of the fork server; has what `WarmPool` uses of a Popen."""

    def __init__(self, pid: int, pid_fd: int, wait_until_gone: Callable[[int], None]) -> None:
        self.pid = pid
        self._pid_fd, self._wait_until_gone = pid_fd, wait_until_gone
        self._lock = Lock()
        self._is_over = False

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Wait until the pool and all processes that it guarded have ended. One thread calls this.

        Raises: subprocess.TimeoutExpired: the pool has not ended within so many seconds.
        """
        if self._is_over:
            return
        poll = select.poll()
        poll.register(self._pid_fd, select.POLLIN)
        if not poll.poll(1000 * timeout):
            raise subprocess.TimeoutExpired(f"pool {self.pid}", timeout)
        with self._lock:
            self._is_over = True
            os.close(self._pid_fd)
        self._wait_until_gone(self.pid)

    def _send(self, number: signal.Signals) -> None:
        # The descriptor's number may be another file's once it is closed.
        with self._lock:
            if not self._is_over:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pid_fd, number)


class ForkServerClient:
    """Has pools forked. Of any thread; one that waits for a server holds up no other."""

    def __init__(
        self, *, children: Children, env: Mapping[str, str], log_path: Path, path: str = ""
    ) -> None:
        """`path` names the socket of a server that another process started. If it is empty, the
        first pool starts a server, with this environment and a log at `log_path`."""
        self._children, self._env, self._log_path, self._path = children, dict(env), log_path, path
        self._lock = Lock()
        self._connection: ForkServerConnection | None = None
        self._is_useless = False

    def fork(
        self, order: ForkOrder, agent_fd: int, log_fd: int, is_wanted: Callable[[], bool]
    ) -> ForkedPool | None:
        """Have a pool forked whose end of the agent's connection is `agent_fd`.

        None means that it must be started as a program, or that nobody wants it any more.
        """
        try:
            connection = self._open()
        except RuntimeError:  # No thread is left; a program may find one.
            return None
        if connection is None:
            return None
        if not connection.wait_ready(is_wanted):
            if is_wanted():
                self._give_up(connection, connection.why)
            return None
        with ExitStack() as stack:
            try:
                order_fd = os.memfd_create("order")
                stack.callback(os.close, order_fd)
                _write(order_fd, pack(order))
                release_fds = os.pipe()
                for fd in release_fds:
                    stack.callback(os.close, fd)
            except OSError:  # We have no descriptor or memory left; the server is not to blame.
                return None
            return self._ask_for_pool(
                connection, order.job, (order_fd, agent_fd, log_fd), release_fds
            )

    def close(self) -> None:
        """End our own server; its pools go on until their connections end."""
        with self._lock:
            self._is_useless = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- private ------------------------------------------------------------------------------

    def _open(self) -> ForkServerConnection | None:
        with self._lock:
            if self._connection is None and not self._is_useless:
                reach = self._connect if self._path else self._start
                self._connection = ForkServerConnection(reach, self._children.end)
            return self._connection

    def _connect(self) -> tuple[socket.socket, None]:
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            ours.settimeout(_CONNECT_LIMIT_S)
            ours.connect(self._path)
            if peer_of(ours).uid != os.geteuid():
                # It would be given the job's environment, and would be what the workers are.
                raise PermissionError(f"the fork server at {self._path} is another user's")
            ours.setblocking(True)
        except OSError:
            ours.close()
            raise
        return ours, None

    def _start(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-u", "-m", "elasticd_agent.pool.fork_server"]
        command += [*limit_arguments(), "--fd", str(theirs.fileno())]
        try:
            with theirs, open_log(self._log_path) as file:
                process = self._children.start(
                    lambda: subprocess.Popen(
                        command,
                        env=self._env,
                        cwd="/",
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,
                        user=child_uid(),
                        group=child_gid(),
                    )
                )
        except (OSError, ValueError):
            ours.close()
            raise
        give_first_limit(process.pid)
        return ours, process

    def _ask_for_pool(
        self,
        connection: ForkServerConnection,
        job: str,
        fds: tuple[int, int, int],
        release_fds: tuple[int, int],
    ) -> ForkedPool | None:
        """Ask with the order, the pool's end of its connection, and its log."""
        pool_reads, we_write = release_fds
        try:
            match connection.ask(FORK, [*fds, pool_reads]):
                case PoolForked(pid=pid), [pid_fd]:
                    # It becomes our child if the server ends. Only now may it begin: a server that
                    # answers too late has forked a pool that ends, since nobody releases it.
                    self._children.adopt(pid)
                    give_first_limit(pid)
                    with suppress(BrokenPipeError):  # It was killed; its connection says so.
                        os.write(we_write, b"\n")
                    return ForkedPool(
                        pid, pid_fd, lambda pid: self._wait_until_gone(connection, pid)
                    )
                case ForkRefused(why=why, is_stale=is_stale), _:
                    log.info("pool.not_forked", job=job, why=why)
                    if is_stale and not self._path:
                        # The next one is forked from a server that is true.
                        self._forget(connection)
                    return None
                case other:
                    raise InvariantBroken(f"The fork server answers {other}.")
        except (OSError, InvariantBroken) as exc:
            self._give_up(connection, f"{type(exc).__name__}: {exc}")
            return None

    def _wait_until_gone(self, connection: ForkServerConnection, pid: int) -> None:
        """Return when nothing is left of a pool that has ended, as far as anybody can tell.

        If its server has ended, what the pool has left behind is our child, and the next to end.
        """
        try:
            answer, _ = connection.ask(REAP + b"%d" % pid)
            if answer != Buried(pid=pid):
                raise InvariantBroken(f"The fork server answers {answer}.")
        except (OSError, InvariantBroken) as exc:
            self._give_up(connection, f"{type(exc).__name__}: {exc}")
            connection.close()  # Its children come to us when it has ended, and not before.

    def _give_up(self, connection: ForkServerConnection, why: str) -> None:
        """Do without this server. Our own is started anew for the next pool, others' is not."""
        if self._forget(connection, is_final=bool(self._path) or connection.is_hopeless):
            log.warning("fork_server.given_up", why=why)

    def _forget(self, connection: ForkServerConnection, *, is_final: bool = False) -> bool:
        """Take no more pools from this server; return False if another thread said so before."""
        with self._lock:
            if self._connection is not connection:
                return False
            self._connection = None
            self._is_useless |= is_final
        connection.give_up()
        return True


def limit_arguments() -> list[str]:
    """Return by which arguments a pool or fork server of another user takes the first limit."""
    limit = first_limit() if child_uid() is not None else None
    return ["--open-files", str(limit)] if limit is not None else []


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]

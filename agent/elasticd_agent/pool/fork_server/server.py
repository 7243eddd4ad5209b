"""The fork server's loop: it forks and reaps pools, and ends the orphans of killed ones.

One thread, which waits in poll() alone: a fork copies only the thread that calls it. The server
does not guard the pools: each pool has its own connection to its agent, and ends with that. So if
the server ends, the pools go on, as children of the next subreaper above.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, replace

from elasticd.channel.fork_server import (
    FORK,
    ORDER_FDS,
    PACKET_BYTES,
    REAP,
    Buried,
    ForkOrder,
    ForkRefused,
    FromServer,
    PoolForked,
    ServerReady,
    unpack_order,
)
from elasticd.channel.wire import pack
from elasticd.errors import InvariantBroken
from elasticd.net.peer import peer_of
from elasticd_agent.pool.fork_server.fork_check import ServerFacts, refusal
from elasticd_agent.pool.fork_server.installation import installation
from elasticd_agent.pool.fork_server.surroundings import surroundings
from elasticd_agent.pool.launch import fork
from elasticd_agent.pool.process.process_table import children_of
from elasticd_agent.pool.process.subtree import Subtree

__all__ = ["InForkedPool", "ForkServer"]

ACCEPT_PAUSE_S = 1.0
"""How long the server accepts nobody after it had no descriptor for a connection: what waits at the
listening socket would wake it at once, for ever."""
_ROUNDS = 20
_PAUSE_S = 0.01
_HUNG_UP = (errno.ECONNABORTED, errno.EAGAIN, errno.EINTR)
"""The client has gone again; nobody waits any more."""


class InForkedPool(BaseException):
    """Raised in a forked pool only; not an Exception, so that nothing on the way handles it."""

    def __init__(self, order: ForkOrder, agent_fd: int, log_fd: int, release_fd: int) -> None:
        super().__init__(order.job)
        self.order, self.agent_fd, self.log_fd = order, agent_fd, log_fd
        self.release_fd = release_fd
        """Where the agent's word comes that it knows the pool."""


@dataclass(slots=True)
class ForkServer:
    owner: socket.socket
    """The connection of the process that has started this one; the server ends with it."""
    listener: socket.socket | None
    """Where agents of the same user connect, if there are others than the owner."""
    facts: ServerFacts
    import_s: float
    accepts_from_s: float = 0.0
    """Until this moment no connection is accepted."""
    is_short: bool = False
    """Whether the last connection could not be accepted; said once."""

    def run(self) -> None:
        """Serve until the owner is gone.

        Raises: InForkedPool: in a forked pool, which must leave this stack at once.
        """
        clients = {self.owner.fileno(): self.owner}
        self._send(self.owner, ServerReady(import_s=self.import_s))
        try:
            self._loop(clients)
        except InForkedPool:
            # The pool closes their descriptors by number, and opens others with these numbers.
            for each in (*clients.values(), *([self.listener] if self.listener else ())):
                each.detach()
            raise

    def _loop(self, clients: dict[int, socket.socket]) -> None:
        wake_fd = _wake_at_end_of_child()
        pools: set[int] = set()
        while True:
            poll = select.poll()
            for fd in (wake_fd, *clients):
                poll.register(fd, select.POLLIN)
            pause_s = max(0.0, self.accepts_from_s - time.monotonic())
            if self.listener is not None and not pause_s:
                poll.register(self.listener, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(1000 * pause_s if pause_s else None)}
            if wake_fd in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_fd, 4096)
                _reap(pools)
            if self.listener is not None and self.listener.fileno() in ready:
                self._accept(clients)
            for fd in ready & clients.keys():
                if not self._serve(clients[fd], pools):
                    if clients[fd] is self.owner:
                        return
                    clients.pop(fd).close()

    def _accept(self, clients: dict[int, socket.socket]) -> None:
        assert self.listener is not None
        try:
            client, _ = self.listener.accept()
        except OSError as exc:
            if exc.errno not in _HUNG_UP:
                self._pause_accepting(exc)
            return
        self.is_short = False
        with contextlib.suppress(OSError):  # It has hung up.
            client.setblocking(True)
            if peer_of(client).uid != os.geteuid():
                client.close()
                return
            clients[client.fileno()] = client
            self._send(client, ServerReady(import_s=self.import_s))

    def _pause_accepting(self, exc: OSError) -> None:
        self.accepts_from_s = time.monotonic() + ACCEPT_PAUSE_S
        if not self.is_short:
            self.is_short = True
            print(  # noqa: T201
                f"elasticd fork server: no other agent can be accepted ({exc.strerror}). It tries "
                "again each second, and each agent waits a minute: raise the limit of open files.",
                file=sys.stderr,
            )

    def _serve(self, client: socket.socket, pools: set[int]) -> bool:
        """Answer one packet; return False if the connection is over."""
        try:
            packet, fds, _, _ = socket.recv_fds(
                client, PACKET_BYTES, ORDER_FDS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return False
        try:
            if packet == FORK and len(fds) == ORDER_FDS:
                return self._fork(client, fds, pools)
            if packet.startswith(REAP):
                # What is left of a pool is ended before anybody may begin another.
                _reap(pools)
                return self._send(client, Buried(pid=int(packet.removeprefix(REAP))))
            return False  # The end, or a client of another version.
        except ValueError:
            return False
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(self, client: socket.socket, fds: list[int], pools: set[int]) -> bool:
        order_fd, *pool_fds = fds
        try:
            order = unpack_order(os.pread(order_fd, os.fstat(order_fd).st_size, 0))
        except InvariantBroken as exc:
            return self._send(client, ForkRefused(why=str(exc)))
        refused = refusal(order, replace(self.facts, surroundings=surroundings()), installation())
        if refused is not None:
            return self._send(client, refused)
        try:
            pid = fork()
        except OSError as exc:
            return self._send(client, ForkRefused(why=f"no process could be made: {exc.strerror}"))
        if pid == 0:
            # `_serve` closes what came with the packet, on the way out of here too.
            raise InForkedPool(order, *map(os.dup, pool_fds))
        pools.add(pid)
        try:
            pid_fd = os.pidfd_open(pid)
        except OSError as exc:  # A kernel before 5.3, or no descriptor is left.
            os.kill(pid, signal.SIGKILL)
            return self._send(client, ForkRefused(why=f"pidfd_open: {exc.strerror}"))
        try:
            socket.send_fds(client, [pack(PoolForked(pid=pid))], [pid_fd])
        except OSError:
            return False  # The agent has given us up: nobody releases the pool, so it ends.
        finally:
            os.close(pid_fd)
        return True

    @staticmethod
    def _send(client: socket.socket, message: FromServer) -> bool:
        try:
            client.send(pack(message), socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True


def _reap(pools: set[int]) -> None:
    """Reap the pools that have ended, and kill the processes that they left behind.

    The children of a killed pool's workers, in sessions of their own, become children of this
    server, the subreaper above the pool. Every child of the server that is no pool is one of them.
    """
    for pid in list(pools):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        pools.discard(pid)
    subtree = Subtree()
    for _ in range(_ROUNDS):
        orphans = [pid for pid in children_of(os.getpid()) if pid not in pools]
        if not orphans:
            return
        for pid in orphans:
            subtree.kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_PAUSE_S)


def _wake_at_end_of_child() -> int:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return read_fd

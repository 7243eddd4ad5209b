"""Start the process of a worker: a fork of the warm pool, or a spawn where a fork is unsafe.

Forked children do not run inside the pool's stack. `InForkedWorker` carries them up to `__main__`,
so that the interpreter ends a worker by itself, as it would have ended the script: exit code,
atexit, threads, flushing. Rejected: to run the script where the fork returns and to call os._exit()
afterwards, because all of that would have to be written again.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import elasticd
import elasticd_agent
from elasticd.channel.pool import Start
from elasticd.channel.wire import pack
from elasticd_agent.pool.child import Child
from elasticd_agent.pool.link import Link
from elasticd_agent.pool.process.inheritance import drop_inherited

__all__ = ["InForkedWorker", "InheritedState", "Launcher", "exec_worker", "fork", "import_roots"]

_SPAWN_WORKER = (
    "import sys; sys.path[:0] = sys.argv[1:3]; "
    "from elasticd_agent.pool.worker.worker import main; main(*sys.argv[1:])"
)
_SPAWN_STORE_HOST = (
    "import sys; sys.path[:0] = sys.argv[1:3]; "
    "from elasticd_agent.pool.store_host import main; main(*sys.argv[1:])"
)
_HIGH_FD = 200
"""Above what a young process has open, so that the low numbers are free for dup2."""
_SPAWNED_INPUT_FD = 3
_SPAWNED_OUTPUT_FD = 4


class InForkedWorker(BaseException):
    """Raised in a forked worker only; not an Exception, so that nothing on the way handles it."""

    def __init__(self, start: Start, report_fd: int, inherited: "InheritedState") -> None:
        super().__init__(start.worker)
        self.start = start
        self.report_fd = report_fd
        self.inherited = inherited


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedState:
    """The things that a worker has from the process that forked it, and must keep."""

    kept_fds: Collection[int]
    """Descriptors that imported modules opened: they belong to the workers too."""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """What imported modules set in the environment; None: taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    can_fork: bool
    pool_pid: int
    kept_fds: Collection[int]
    can_park: bool = False
    """True if a fork is so expensive that workers are forked before they are needed."""

    def launch(self, start: Start) -> Child:
        """Start a worker, by a fork where that is safe.

        Raises: OSError: the system gives no process. InForkedWorker: in the new process, which
        leaves the pool's loop by this exception.
        """
        read_fd, write_fd = os.pipe()
        try:
            pid = fork() if self.can_fork else _spawn_worker(start, write_fd)
        except OSError:
            os.close(read_fd)
            os.close(write_fd)
            raise
        if pid == 0:
            raise InForkedWorker(start, write_fd, InheritedState(kept_fds=self.kept_fds))
        os.close(write_fd)
        return Child(start=start, pid=pid, report=Link(read_fd))

    def launch_store_host(self, serve: Callable[[int, int], None]) -> tuple[int, Link]:
        """Start the store host; its input and output are one `Link` of the pool."""
        host_reads, we_write = os.pipe()
        we_read, host_writes = os.pipe()
        try:
            if self.can_fork:
                pid = fork()
                if pid == 0:
                    self._be_store_host(serve, host_reads, host_writes)
            else:
                pid = _spawn(_SPAWN_STORE_HOST, host_reads, host_writes, dict(os.environ))
        except OSError:
            os.close(we_read)
            os.close(we_write)
            raise
        finally:
            os.close(host_reads)
            os.close(host_writes)
        return pid, Link(we_read, we_write)

    def _be_store_host(
        self, serve: Callable[[int, int], None], read_fd: int, write_fd: int
    ) -> None:
        try:
            drop_inherited({*self.kept_fds, read_fd, write_fd}, self.pool_pid)
            serve(read_fd, write_fd)
        finally:
            os._exit(1)


def import_roots() -> tuple[str, str]:
    """Return the folders from which a fresh interpreter can import elasticd, whatever its
    PYTHONPATH.
    """
    roots = [str(Path(str(package.__file__)).parents[1]) for package in (elasticd, elasticd_agent)]
    return roots[0], roots[1]


def fork() -> int:
    """Fork; in the child all signals stay blocked until it has shed the pool's handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def exec_worker(start: Start, order_fd: int, report_fd: int, pool_pid: int) -> NoReturn:
    """Exec a fresh interpreter, in a forked worker that cannot use the pool's imports."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD) for fd in (order_fd, report_fd)]
    os.lseek(high[0], 0, os.SEEK_SET)
    os.dup2(high[0], _SPAWNED_INPUT_FD)
    os.dup2(high[1], _SPAWNED_OUTPUT_FD)
    command = [sys.executable, "-u", "-c", _SPAWN_WORKER, *import_roots(), str(pool_pid)]
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execve(sys.executable, command, dict(start.env))  # noqa: S606  # itself


def _spawn_worker(start: Start, report_fd: int) -> int:
    order_fd = os.memfd_create("start")
    try:
        os.write(order_fd, pack(start))
        os.lseek(order_fd, 0, os.SEEK_SET)
        return _spawn(_SPAWN_WORKER, order_fd, report_fd, dict(start.env))
    finally:
        os.close(order_fd)


def _spawn(program: str, input_fd: int, output_fd: int, env: dict[str, str]) -> int:
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD) for fd in (input_fd, output_fd)]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-u", "-c", program, *import_roots(), str(os.getpid())],
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, high[0], _SPAWNED_INPUT_FD),
                (os.POSIX_SPAWN_DUP2, high[1], _SPAWNED_OUTPUT_FD),
            ],
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    finally:
        for fd in high:
            os.close(fd)

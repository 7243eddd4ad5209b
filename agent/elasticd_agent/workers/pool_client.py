"""The agent's end of the warm pool: the process, its channel, and the thread that looks after both.

Nobody else waits for a pool. Its folder may lie on a disk that hangs, and its interpreter too: then
this job has no pool here, and other jobs are not affected. Rejected: one thread that starts all
pools, since the first pool that hangs would hold up the others.
"""

import errno
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Thread

from elasticd.channel.fork_server import ForkOrder
from elasticd.channel.pool import (
    FromPool,
    NotParked,
    PoolLearned,
    PoolParked,
    ToPool,
    unpack_from_pool,
)
from elasticd.channel.wire import LINE_LIMIT_BYTES, pack
from elasticd.errors import InvariantBroken
from elasticd.records.ids import NodeId
from elasticd.records.job import EntryKind, JobSpec
from elasticd.telemetry.log import get_logger, open_log
from elasticd_agent.loop.open_file_limit import give_first_limit
from elasticd_agent.pod.orphans import Children
from elasticd_agent.pool.fork_server.fork_check import can_be_forked
from elasticd_agent.pool.fork_server.surroundings import surroundings
from elasticd_agent.pool.process.effective_user import child_gid, child_uid
from elasticd_agent.worker_setup.worker_env import without_secrets
from elasticd_agent.workers.fork_server_client import ForkedPool, ForkServerClient, limit_arguments

__all__ = [
    "LEARNED_FOLDER",
    "Learning",
    "PoolNotStarted",
    "PoolTrouble",
    "WarmPool",
    "fork_server_client",
    "open_pool",
]

BACKLOG_LIMIT_BYTES = 64_000_000
"""A pool that leaves so much unread is given up."""

END_TIMEOUT_S = 5.0
"""How long a pool has to end what it guards, and itself."""


LEARNED_FOLDER = ".imports"
"""The folder of what the scripts of this node import. It lies below the run folder, under a name
that no job can have."""

KILL_TIMEOUT_S = 1.0
"""How long to wait for a killed process: one that hangs in the kernel does not end, and must not
block the agent."""


log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNotStarted:
    """The system gave no process, or the folder could not be used; a later try may succeed."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTrouble:
    """Why there is no pool now."""

    why: str = ""
    """The reason; empty if it ended unexpectedly."""
    may_pass: bool = True
    """False if the pool says itself that it can never work here."""
    was_ready: bool = True
    """False if no pool has ever worked here for this job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Settings with which the pool finds out what the script imports, and the folder of this node
    that keeps it.
    """

    folder: Path
    entry: str
    is_module: bool


OnPoolMessage = Callable[[FromPool | PoolNotStarted | None], None]


class WarmPool:
    """One pool process, from its folder to its end.

    One thread calls `prepare`, starts the process, listens to it and sees it end. It calls
    `on_message` with each message, and at last with None; or with `PoolNotStarted` and nothing
    else. The same thread does all of that because the kernel ties the pool's parent-death signal to
    the thread that started it, so that one must live as long as the pool.
    """

    def __init__(
        self,
        *,
        python: str,
        env: Mapping[str, str],
        cwd: str,
        preload: tuple[str, ...],
        needs_torch: bool = True,
        learning: Learning | None = None,
        on_message: OnPoolMessage,
        log_path: str,
        children: Children,
        prepare: Callable[[], None] | None = None,
        job: str = "",
        fork_server: ForkServerClient | None = None,
    ) -> None:
        """Start the thread; `prepare` makes the folder in which the pool's log stands.

        The pool is forked from the fork server if possible; with None it is always a new program.

        Raises: OSError: no descriptor or no thread is left.
        """
        self._sock, self._theirs = socket.socketpair()
        # `-u` gives its workers the flags that torchrun gives; in "/" no file of the job's folder
        # can stand in for a module of Python's own while the pool starts.
        self._command = [python or sys.executable, "-u", "-m", "elasticd_agent.pool"]
        self._command += ["--fd", str(self._theirs.fileno()), "--folder", cwd]
        if not needs_torch:
            self._command.append("--no-torch")
        if preload:
            self._command += ["--preload", ",".join(preload)]
        if learning is not None:
            self._command += ["--learn-in", str(learning.folder), "--script", learning.entry]
            self._command += ["--is-module"] if learning.is_module else []
        self._env, self._log_path = dict(env), Path(log_path)
        self._fork_server = fork_server
        self._order = ForkOrder(
            job=job,
            env=self._env,
            surroundings={},
            folder=cwd,
            script=learning.entry if learning is not None else "",
            is_module=learning is not None and learning.is_module,
            learn_in=str(learning.folder) if learning is not None else "",
        )
        self._children, self._prepare, self._on_message = children, prepare, on_message
        self.process: subprocess.Popen[bytes] | ForkedPool | None = None
        """None until it is started."""
        self._is_closing = Event()
        self._lock = Lock()
        self._backlog = bytearray()
        """What the pool did not take at once; a thread sees to it."""
        self._thread = Thread(target=self._run, name="pool", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as exc:
            self._sock.close()
            self._theirs.close()
            raise OSError(errno.EAGAIN, str(exc)) from exc

    def send(self, message: ToPool) -> None:
        """Send a message without ever waiting, even for a pool that stands still.

        A message to a pool that is gone is dropped; its end is reported anyway.
        """
        line = pack(message)
        with self._lock:
            if not self._backlog:
                line = line[self._send(line) :]
                if not line:
                    return
                try:
                    Thread(target=self._write, name="pool-writer", daemon=True).start()
                except RuntimeError:  # No more threads; what comes after a part is no message.
                    self._hang_up()
                    return
            self._backlog += line
            is_deaf = len(self._backlog) > BACKLOG_LIMIT_BYTES
        if is_deaf:
            self._hang_up()

    def close(self) -> None:
        """End the connection and wait: the pool then kills what it guards.

        A pool that has not been started yet, because a disk hangs, is not started any more.
        """
        self._is_closing.set()
        self._hang_up()
        process = self.process
        if process is not None:
            process.terminate()  # It means the same, and is heard in the middle of an import.
        self._thread.join(END_TIMEOUT_S + 2 * KILL_TIMEOUT_S)

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _send(self, data: bytes | bytearray) -> int:
        """Return how much of it was sent; all of it if the connection is over."""
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def _write(self) -> None:
        """Thread: send the backlog as fast as the pool takes it, and end with it."""
        poll = select.poll()
        try:
            poll.register(self._sock, select.POLLOUT)
            while poll.poll():
                with self._lock:
                    del self._backlog[: self._send(self._backlog)]
                    if not self._backlog:
                        return
        except (OSError, ValueError):
            return  # It was closed meanwhile.

    def _run(self) -> None:
        """Thread: do everything that somebody has to wait for."""
        try:
            process = self._start()
        except (OSError, ValueError) as exc:
            self._sock.close()
            self._on_message(PoolNotStarted(message=_why(exc, self._log_path.parent)))
            return
        try:
            if process is not None:
                self._listen()
        finally:
            self._hang_up()
            if process is not None:
                self._end(process)
            self._sock.close()
            self._on_message(None)

    def _start(self) -> subprocess.Popen[bytes] | ForkedPool | None:
        """Start the process; None if nobody wants it any more.

        Raises: OSError: the folder cannot be used, or no process can be made. ValueError: the
        environment or an argument cannot be handed over.
        """
        with self._theirs as theirs:
            if self._prepare is not None:
                self._prepare()
            with open_log(self._log_path) as log:
                process = self._forked(theirs.fileno(), log.fileno())
                if process is None:
                    if self._is_closing.is_set():
                        return None
                    process = self._spawned(theirs.fileno(), log.fileno())
                    if self._fork_server is not None:
                        # A server that stands still may hold a copy of the pool's end.
                        with suppress(RuntimeError):
                            Thread(target=self._hang_up_after, args=(process,), daemon=True).start()
        self.process = process
        if self._is_closing.is_set():
            process.terminate()  # Whoever closes may have looked just before.
        return process

    def _forked(self, fd: int, log_fd: int) -> subprocess.Popen[bytes] | ForkedPool | None:
        if self._fork_server is None:
            return None
        order = replace(self._order, surroundings=surroundings())
        return self._fork_server.fork(order, fd, log_fd, lambda: not self._is_closing.is_set())

    def _spawned(self, fd: int, log_fd: int) -> subprocess.Popen[bytes]:
        process = self._children.start(
            lambda: subprocess.Popen(
                [*self._command, *limit_arguments()],
                env=self._env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                pass_fds=[fd],
                start_new_session=True,
                user=child_uid(),
                group=child_gid(),
            )
        )
        give_first_limit(process.pid)
        return process

    def _hang_up_after(self, process: subprocess.Popen[bytes]) -> None:
        """Thread: end the connection with the process, whoever else holds its other end."""
        process.wait()
        self._hang_up()

    def _listen(self) -> None:
        # A pool that was killed in the middle of a line leaves half a message.
        with self._sock.makefile("rb") as lines, suppress(OSError, InvariantBroken):
            while line := lines.readline(LINE_LIMIT_BYTES):
                message = unpack_from_pool(line)
                if isinstance(message, PoolLearned):
                    _log_learned(message)
                elif isinstance(message, PoolParked):
                    _log_parked(message)
                elif isinstance(message, NotParked):
                    log.info("pool.not_parked", why=message.why)
                else:
                    self._on_message(message)

    def _end(self, process: subprocess.Popen[bytes] | ForkedPool) -> None:
        """Wait for the pool's end, and make sure that none of its workers lives on unnoticed."""
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(KILL_TIMEOUT_S)
        self._children.end(process.pid)


def _why(exc: OSError | ValueError, folder: Path) -> str:
    """Return a sentence on which file is wrong, and why; `folder` is the one that is written to."""
    if isinstance(exc, OSError) and (exc.filename or exc.errno in (errno.ENOSPC, errno.EDQUOT)):
        return f"{exc.filename or folder}: {exc.strerror}"  # A write does not know its file's name.
    return str(exc)


def _log_learned(learned: PoolLearned) -> None:
    """Log which modules workers of a job get preloaded from now on, and which not."""
    log.info(
        "pool.learned",
        modules=learned.modules,
        import_seconds=round(learned.import_s, 2),
        pss_mib=round(learned.pss_bytes / 2**20),
        left_out=dict(learned.left_out),
    )


def _log_parked(parked: PoolParked) -> None:
    """Log how many workers are forked ahead, and the memory that each of them takes."""
    log.info(
        "pool.parked",
        workers=parked.workers,
        private_mib=round(parked.private_bytes / 2**20, 1),
    )


def open_pool(
    spec: JobSpec,
    cwd: str,
    *,
    environ: Mapping[str, str],
    run_folder: Path,
    log_path: Path,
    on_message: OnPoolMessage,
    children: Children,
    prepare: Callable[[], None],
    fork_server: ForkServerClient | None,
) -> WarmPool:
    """Start the pool from which a job's workers are forked."""
    if not can_be_forked(spec, environ):
        fork_server = None
    learning = None
    if spec.learns_imports and spec.entry_kind is not EntryKind.COMMAND:
        is_module = spec.entry_kind is EntryKind.MODULE
        folder = (run_folder / LEARNED_FOLDER).absolute()
        learning = Learning(folder=folder, entry=spec.entry, is_module=is_module)
    return WarmPool(
        python=spec.python,
        env=without_secrets({**environ, **spec.env}),
        cwd=cwd,
        preload=spec.preload,
        needs_torch=not spec.needs_no_torch,
        learning=learning,
        on_message=on_message,
        log_path=str(log_path),
        children=children,
        prepare=prepare,
        job=spec.name,
        fork_server=fork_server,
    )


def fork_server_client(
    node: NodeId, run_folder: Path, children: Children, path: str, *, environ: Mapping[str, str]
) -> ForkServerClient:
    """Make the way to the fork server whose socket this is, or to one of our own."""
    return ForkServerClient(
        children=children,
        env=without_secrets(environ),
        log_path=run_folder / f".fork-server-{node}.log",
        path=path,
    )

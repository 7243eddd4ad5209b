"""The agent's end of the warm pool: the process, its channel, and a thread that listens to it."""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from elasticd.channel.pool import FromPool, ToPool, unpack_from_pool
from elasticd.channel.wire import LINE_LIMIT_BYTES, pack
from elasticd.errors import InvariantBroken
from elasticd.records.job import JobSpec
from elasticd.telemetry.log import open_log
from elasticd_agent.descriptors import give_first_limit
from elasticd_agent.worker_env import without_secrets

__all__ = ["WarmPool", "open_pool"]

BACKLOG_LIMIT_BYTES = 64_000_000
"""A pool that reads nothing for so long is as good as gone."""

KILL_TIMEOUT_S = 1.0
"""A process that hangs in the kernel does not end; the agent must not wait for it."""


class WarmPool:
    """One pool process. `heard` gets each message and at last None, from the reader's thread.

    Must be made on the agent's main thread: the kernel ties the pool's parent-death signal to the
    thread that started it, and that one lives as long as the agent.
    """

    def __init__(
        self,
        *,
        python: str,
        env: Mapping[str, str],
        cwd: str,
        preload: tuple[str, ...],
        needs_torch: bool = True,
        heard: Callable[[FromPool | None], None],
        log_path: str,
    ) -> None:
        ours, theirs = socket.socketpair()
        self._sock = ours
        # `-u` gives its workers the flags that torchrun gives; in "/" no file of the job's folder
        # can stand in for a module of Python's own while the pool starts.
        command = [python or sys.executable, "-u", "-m", "elasticd_agent.pool"]
        command += ["--fd", str(theirs.fileno()), "--folder", cwd]
        if not needs_torch:
            command.append("--no-torch")
        if preload:
            command += ["--preload", ",".join(preload)]
        with open_log(Path(log_path)) as log, theirs:
            self.process = subprocess.Popen(
                command,
                env=dict(env),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        give_first_limit(self.process.pid)
        self._heard = heard
        self._lock = Lock()
        self._backlog = bytearray()
        """What the pool did not take at once; a thread sees to it."""
        self._reader = Thread(target=self._read, name="pool-reader", daemon=True)
        self._reader.start()

    def tell(self, message: ToPool) -> None:
        """Send a message; never waits, also for a pool that stands still.

        One to a pool that is gone is dropped, its end is heard anyway.
        """
        line = pack(message)
        with self._lock:
            if not self._backlog:
                line = line[self._send(line) :]
                if not line:
                    return
                Thread(target=self._write, name="pool-writer", daemon=True).start()
            self._backlog += line
            is_deaf = len(self._backlog) > BACKLOG_LIMIT_BYTES
        if is_deaf:
            self._hang_up()

    def close(self, timeout_s: float) -> None:
        """End the connection, at which the pool kills what it guards; then make sure of it."""
        self._hang_up()
        # It means the same to the pool, and it is heard in the middle of an import.
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(KILL_TIMEOUT_S)
        self._reader.join(timeout_s)
        self._sock.close()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _send(self, data: bytes | bytearray) -> int:
        """How much of it is off our hands; all, if the connection is over."""
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def _write(self) -> None:
        """Thread: send the backlog as the pool takes it; ends with it."""
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

    def _read(self) -> None:
        try:
            # A pool that was killed in the middle of a line leaves half a message.
            with self._sock.makefile("rb") as lines, suppress(OSError, InvariantBroken):
                while line := lines.readline(LINE_LIMIT_BYTES):
                    self._heard(unpack_from_pool(line))
        finally:
            self._hang_up()
            self._heard(None)


def open_pool(
    spec: JobSpec, cwd: str, *, log_path: Path, heard: Callable[[FromPool | None], None]
) -> WarmPool:
    """Start the pool that a job's workers are forked from."""
    return WarmPool(
        python=spec.python,
        env=without_secrets({**os.environ, **spec.env}),
        cwd=cwd,
        preload=spec.preload,
        needs_torch=not spec.needs_no_torch,
        heard=heard,
        log_path=str(log_path),
    )

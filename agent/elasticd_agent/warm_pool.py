"""The agent's end of the warm pool: the process, its channel, and a thread that listens to it."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread

from elasticd.channel import LINE_LIMIT_BYTES, FromPool, ToPool, pack, unpack_from_pool
from elasticd.errors import InvariantBroken

__all__ = ["WarmPool"]

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
        heard: Callable[[FromPool | None], None],
        log_path: str,
    ) -> None:
        ours, theirs = socket.socketpair()
        self._sock = ours
        # `-u` gives its workers the flags that torchrun gives; in "/" no file of the job's folder
        # can stand in for a module of Python's own while the pool starts.
        command = [python or sys.executable, "-u", "-m", "elasticd_agent.pool"]
        command += ["--fd", str(theirs.fileno()), "--folder", cwd]
        if preload:
            command += ["--preload", ",".join(preload)]
        os.makedirs(os.path.dirname(log_path), exist_ok=True)
        with open(log_path, "ab") as log, theirs:
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
        self._heard = heard
        self._reader = Thread(target=self._read, name="pool-reader", daemon=True)
        self._reader.start()

    def tell(self, message: ToPool) -> None:
        """Send a message; one to a pool that is gone is dropped, its end is heard anyway."""
        try:
            self._sock.sendall(pack(message))
        except OSError:
            return

    def close(self, timeout_s: float) -> None:
        """End the connection, at which the pool kills what it guards; then make sure of it."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
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

    def _read(self) -> None:
        try:
            # A pool that was killed in the middle of a line leaves half a message.
            with self._sock.makefile("rb") as lines, suppress(OSError, InvariantBroken):
                while line := lines.readline(LINE_LIMIT_BYTES):
                    self._heard(unpack_from_pool(line))
        finally:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._heard(None)

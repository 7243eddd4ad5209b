"""A worker's messages to the pool: that it is up, why it cannot start, or what it raised.

They go through a pipe that the script does not know, in the form of `elasticd.channel`, in which
they go on to the agent. If the pipe is lost, only these reports are lost: the pool sees a worker's
end by waiting for the process.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock

from elasticd.channel.pool import FromPool, StartFailed
from elasticd.channel.wire import pack

__all__ = ["Report"]

_LEAST_FD = 250
"""The lowest descriptor that the pipe may have, so that a script gets the numbers that it expects
for its own files."""
_ROOM_BYTES = 1 << 19
"""The pipe's capacity: enough for some ten thousand names of modules."""


class Report:
    def __init__(self, worker: str, fd: int) -> None:
        self.worker = worker
        self.fd = fd
        # A collection of garbage, in which a word may be sent, comes in any thread.
        self._lock = RLock()

    def move_up(self) -> None:
        """Move the pipe to a high descriptor, which an exec closes, and free the low number."""
        with suppress(OSError):  # A limit on open files below it: then it stays where it is.
            high_fd = fcntl.fcntl(self.fd, fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
            os.close(self.fd)
            self.fd = high_fd

    def make_room(self) -> None:
        """Make the pipe large enough for the longest message, so that a pool that stands still
        blocks no step.
        """
        with suppress(OSError):  # Whoever has many large pipes gets no more of them.
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, _ROOM_BYTES)

    def send(self, message: FromPool) -> None:
        line = pack(message)
        # The script may have closed it; its exit code is still seen.
        with suppress(OSError), self._lock:
            while line:
                line = line[os.write(self.fd, line) :]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Report an error in the block, which keeps the worker from starting; end the process."""
        try:
            yield
        except Exception as exc:
            message = f"The worker could not be set up: {exc}."
            self.send(StartFailed(worker=self.worker, message=message))
            os._exit(1)

"""A worker's word to the pool: that it is up, that it cannot start, or what it raised.

A pipe that the script does not know of. It carries the messages of `elasticd.channel` as they go on
to the agent. Losing it costs words, not safety: the pool sees a worker's end by waiting for it.
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
"""Out of the way of a script that counts on the number of the first file it opens."""
_ROOM_BYTES = 1 << 19
"""Some ten thousand names of modules."""


class Report:
    def __init__(self, worker: str, fd: int) -> None:
        self.worker = worker
        self.fd = fd
        # A collection of garbage, in which a word may be sent, comes in any thread.
        self._lock = RLock()

    def move_up(self) -> None:
        """Give the low number back; an exec closes the high one."""
        with suppress(OSError):  # A limit on open files below it: then it stays where it is.
            high_fd = fcntl.fcntl(self.fd, fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
            os.close(self.fd)
            self.fd = high_fd

    def make_room(self) -> None:
        """Have the pipe hold the longest word, so that a pool which stands still stops no step."""
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
        """Tell what keeps the worker from starting, and end the process."""
        try:
            yield
        except Exception as exc:
            message = f"The worker could not be set up: {exc}."
            self.send(StartFailed(worker=self.worker, message=message))
            os._exit(1)

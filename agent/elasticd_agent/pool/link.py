"""One line-wise connection of the pool, over a bare file descriptor that never blocks.

It uses bare numbers, not socket objects: a forked worker closes the pool's descriptors and opens
its own under the same numbers. A socket object that is collected later would close the worker's
descriptors.
"""

import os

from elasticd.channel.wire import LINE_LIMIT_BYTES
from elasticd.net.framing import LineReader

__all__ = ["Link"]

_READ_BYTES = 1 << 16
_UNSENT_LIMIT_BYTES = 64_000_000
"""An agent that reads nothing for so long is as good as gone."""


class Link:
    """Reads lines, writes lines; `is_over` once the other side is gone."""

    def __init__(self, read_fd: int, write_fd: int | None = None) -> None:
        self.read_fd = read_fd
        self.write_fd = read_fd if write_fd is None else write_fd
        self.is_over = False
        self._unread = LineReader(LINE_LIMIT_BYTES)
        self._unsent = bytearray()
        for fd in self.fds:
            os.set_blocking(fd, False)

    @property
    def fds(self) -> set[int]:
        return {self.read_fd, self.write_fd}

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent) and not self.is_over

    def read_lines(self) -> list[bytes]:
        """Return the complete lines that have arrived; mark the link as over at its end."""
        while not self.is_over:
            try:
                chunk = os.read(self.read_fd, _READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self.is_over = not chunk
            self._unread.feed(chunk)
            if self._unread.is_too_long:
                break  # The poll that led here reports the rest again.
        lines = list(self._unread.lines())
        if self._unread.is_too_long:
            self.is_over = True
        return lines

    def write(self, line: bytes) -> None:
        self._unsent += line
        self.flush()

    def flush(self) -> None:
        """Send as many bytes as the other side takes now; keep the others."""
        while self._unsent and not self.is_over:
            try:
                sent = os.write(self.write_fd, self._unsent)
            except BlockingIOError:
                self.is_over = len(self._unsent) > _UNSENT_LIMIT_BYTES
                return
            except OSError:
                self.is_over = True
                return
            del self._unsent[:sent]

    def close(self) -> None:
        self.is_over = True
        for fd in self.fds:
            os.close(fd)

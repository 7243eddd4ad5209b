"""Reads one log of a worker as it grows, and gives what is new as whole lines.

The file is kept open, so lines written before a rename are still read; another file of that name,
and one that was made shorter, are read from their begin. Room that was given back (`disk_limit`)
reads as zeros, which no script prints: they are left out, and reported as missing.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["LINE_BYTES", "LOOK_BYTES", "FollowedLog"]

LOOK_BYTES = 1 << 20
"""As much of a log is read in one look; of what came beyond that only the last part is."""
LINE_BYTES = 1 << 14
"""A longer line is given in pieces: the container runtimes cut them there as well."""
_MISSING = b"[elasticd] %d bytes are not shown here: `elasticd logs` shows what is left of them"
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class FollowedLog:
    """Used by one thread; nothing of the file stays in memory but a line that is not ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._offset = 0
        self._part = b""
        self._missing = 0

    def read(self) -> Iterator[bytes]:
        """Return the lines that came since the last look, without line ends.

        A file that does not exist, or cannot be read now, has none.
        """
        with suppress(OSError):
            if self._fd is None:
                self._open()
            yield from self._read()
            if self._is_replaced():
                yield from self._read()
                yield from self.end()
                self._open()
                yield from self._read()

    def end(self) -> Iterator[bytes]:
        """Give the last line, if no line end came, and close the file."""
        if self._part:
            yield self._part
        self._part = b""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def lose(self, count: int) -> None:
        """Count bytes that were read here and could not be passed on."""
        self._missing += count

    # --- private ------------------------------------------------------------------------------

    def _open(self) -> None:
        self._fd, self._offset = os.open(self._path, _FLAGS), 0

    def _is_replaced(self) -> bool:
        """Return whether another file has the name by now; one that is gone is read on."""
        assert self._fd is not None
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        return not os.path.samestat(named, os.fstat(self._fd))

    def _read(self) -> Iterator[bytes]:
        assert self._fd is not None
        size = os.fstat(self._fd).st_size
        if size < self._offset:
            self._offset = 0
        is_cut = size - self._offset > LOOK_BYTES
        if is_cut:
            self._missing += size - LOOK_BYTES - self._offset + len(self._part)
            self._offset, self._part = size - LOOK_BYTES, b""
        data = os.pread(self._fd, size - self._offset, self._offset)
        self._offset += len(data)
        if is_cut:
            data = self._from_next_line(data)
        shown = data.replace(b"\0", b"")
        self._missing += len(data) - len(shown)
        *lines, self._part = (self._part + shown).split(b"\n")
        if self._missing and (lines or self._part):
            yield _MISSING % self._missing
            self._missing = 0
        for line in lines:
            yield from _pieces(line)
        *pieces, self._part = _pieces(self._part)
        yield from pieces

    def _from_next_line(self, data: bytes) -> bytes:
        """Leave out the rest of the line in whose middle it begins, if that ends soon."""
        end = data.find(b"\n", 0, LINE_BYTES) + 1
        self._missing += end
        return data[end:]


def _pieces(line: bytes) -> list[bytes]:
    return [line[at : at + LINE_BYTES] for at in range(0, max(len(line), 1), LINE_BYTES)]

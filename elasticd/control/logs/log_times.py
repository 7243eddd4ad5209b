"""The times at which parts of a log were written, for `logs --since` and `--timestamps`. Pure.

Workers write lines without times, and directly into their files. Every two seconds, if a file has
grown, the agent notes the time and the file's size. So a line's time is exact to two seconds, by
the clock of its node. A job that prints all the time needs 1.3 MB of notes for each day and rank.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from elasticd.control.logs.console import OUT

__all__ = ["LogTimes", "TimedLines", "times_line"]

STAMP = "%Y-%m-%d %H:%M:%S "
NO_STAMP = b" " * 20
"""The stamp of a line without a noted time: the agent was of an older version, or did not run."""


def times_line(at_unix_s: float, out_bytes: int, err_bytes: int) -> bytes:
    """Return a note of the sizes of both streams at a time."""
    return b"%d %d %d\n" % (at_unix_s, out_bytes, err_bytes)


@dataclass(frozen=True, slots=True)
class LogTimes:
    """The notes about one stream: growing sizes, and the time of each size."""

    sizes: Sequence[int] = ()
    at_unix_s: Sequence[int] = ()

    @classmethod
    def parse(cls, text: bytes, stream: int) -> "LogTimes":
        """Read the notes of an agent; malformed lines are left out."""
        column = 1 if stream == OUT else 2
        sizes: list[int] = []
        times: list[int] = []
        for line in text.splitlines():
            parts = line.split()
            if len(parts) != 3 or not all(part.isdigit() for part in parts):
                continue
            size = int(parts[column])
            if size > (sizes[-1] if sizes else 0):
                sizes.append(size)
                times.append(int(parts[0]))
        return cls(sizes, times)

    def offset_since(self, at_unix_s: float) -> int | None:
        """Return the offset of the first byte written since a time; None if there is no such byte.

        The bytes up to the last note before that time are left out. Without notes the offset is 0.
        """
        if not self.sizes:
            return 0
        # A clock may have been set back, so the order in the file counts.
        first = bisect_left(list(accumulate(self.at_unix_s, max)), at_unix_s)
        if first == len(self.sizes):
            return None
        return self.sizes[first - 1] if first else 0

    def at(self, end: int) -> int | None:
        """Return when the line that ends at this offset was written; None if it is not known."""
        index = bisect_left(self.sizes, end)
        return self.at_unix_s[index] if index < len(self.sizes) else None


@dataclass(slots=True)
class TimedLines:
    """Puts the time before each line of a stream that is read in pieces."""

    times: LogTimes
    offset: int
    """The offset of the next byte."""
    now_s: Callable[[], float] | None = None
    """Returns the time of a line that was just written and is not noted yet; None if unknown."""
    _is_at_begin: bool = field(default=True, init=False)

    def stamped(self, data: bytes) -> bytes:
        """Return a piece of the stream with the times of the lines that begin in the piece."""
        parts = []
        for line in _lines(data):
            self.offset += len(line)
            if self._is_at_begin:
                parts.append(self._stamp())
            parts.append(line)
            self._is_at_begin = line.endswith(b"\n")
        return b"".join(parts)

    def _stamp(self) -> bytes:
        at: float | None = self.times.at(self.offset)
        if at is None and self.now_s is not None:
            at = self.now_s()
        return NO_STAMP if at is None else time.strftime(STAMP, time.localtime(at)).encode()


def _lines(data: bytes) -> list[bytes]:
    """Split at line feeds only: a carriage return, as in a progress bar, does not end a line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]

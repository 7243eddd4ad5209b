"""When which part of a log was written: what `logs --since` and `--timestamps` go by. Pure.

Workers write lines without times, and directly into their files. Every two seconds in which
something was written, the agent notes the time and how much stands there. So a line's time is known
to two seconds, by the clock of its node. A job that prints all the time costs 1.3 MB of notes a day
and rank.
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
"""The stamp of a line without a noted time: the agent was older, or was not there."""


def times_line(at_unix_s: float, out_bytes: int, err_bytes: int) -> bytes:
    """Return the note that this much of both streams stood there at that time."""
    return b"%d %d %d\n" % (at_unix_s, out_bytes, err_bytes)


@dataclass(frozen=True, slots=True)
class LogTimes:
    """The notes about one stream: growing sizes, and when it had each."""

    sizes: Sequence[int] = ()
    at_unix_s: Sequence[int] = ()

    @classmethod
    def parse(cls, text: bytes, stream: int) -> "LogTimes":
        """Read what an agent noted; lines that make no sense are left out."""
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
        """Return the offset of what was written from then on; None if nothing was.

        What stood there at the last note before that time is left out; without notes everything
        counts.
        """
        if not self.sizes:
            return 0
        # A clock that was set back tells no order: what stands later was written later.
        first = bisect_left(list(accumulate(self.at_unix_s, max)), at_unix_s)
        if first == len(self.sizes):
            return None
        return self.sizes[first - 1] if first else 0

    def at(self, end: int) -> int | None:
        """Return when a line that ends at this offset had been written; None if not known."""
        index = bisect_left(self.sizes, end)
        return self.at_unix_s[index] if index < len(self.sizes) else None


@dataclass(slots=True)
class TimedLines:
    """Puts the time before each line of a stream that comes in pieces."""

    times: LogTimes
    offset: int
    """The offset of the next byte that comes."""
    now_s: Callable[[], float] | None = None
    """The time of a line that is not noted yet, since it is just written; None if not known."""
    _is_at_begin: bool = field(default=True, init=False)

    def stamped(self, data: bytes) -> bytes:
        """Return the piece with the times of the lines that begin in it."""
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
    """Split at line feeds alone: a progress bar's carriage returns end no line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]

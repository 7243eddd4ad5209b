"""The requested part of a log: its last lines, or the lines since a time.

A log is read by offsets, on this machine or on another node. The part whose disk space was freed
(`--log-max`) is skipped, and a line says so.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from elasticd.control.logs.log_hole import find_gap
from elasticd.control.logs.log_tail import tail_offset
from elasticd.control.logs.log_times import LogTimes, TimedLines

__all__ = ["CHUNK_BYTES", "OpenLog", "LogSlice", "dropped", "line_count", "read_slice"]

CHUNK_BYTES = 1 << 20
"""The size of one read; an agent sends at most this much in one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """One stream of a rank in a generation, here or on another node."""

    read: Callable[[int, int], bytes]
    """Returns the bytes from an offset on, at most as many as asked for; none at the end."""
    size: Callable[[], int]
    """Returns the present size of the log in bytes."""
    times: Callable[[], LogTimes]
    """Returns the times of writing; it is called only if the times are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """The part of a log that is to be shown."""

    lines: int | None = None
    """The number of last lines; None for all."""
    since_unix_s: float | None = None
    """Only lines written from this time on are shown, by the clock of the node; None for all."""
    has_stamps: bool = False
    """True if the time is shown before each line."""

    @property
    def is_complete(self) -> bool:
        return self.lines is None and self.since_unix_s is None

    def begin(self, log: OpenLog) -> int | None:
        """Return the offset from which the log is shown; None if nothing is shown."""
        begin = 0
        if self.since_unix_s is not None:
            since = log.times().offset_since(self.since_unix_s)
            if since is None:
                return None
            begin = since
        if self.lines is not None:
            begin = max(begin, tail_offset(log.read, log.size(), self.lines))
        return begin

    def stamps(self, log: OpenLog, begin: int, *, is_live: bool = False) -> TimedLines | None:
        """Return the object that puts times before the lines from `begin` on; None without stamps.

        With `is_live`, a line without a note was written just now.
        """
        if not self.has_stamps:
            return None
        return TimedLines(log.times(), begin, now_s=time.time if is_live else None)


def read_slice(log: OpenLog, wanted: LogSlice) -> Iterator[bytes]:
    """Yield the requested part of a log up to its present end."""
    offset = wanted.begin(log)
    if offset is None:
        return
    stamps = wanted.stamps(log, offset)
    while data := log.read(offset, CHUNK_BYTES):
        gap = find_gap(log.read, data, offset, log.size()) if b"\0" in data else None
        if gap is not None:
            data = data[: gap.begin - offset]
        yield stamps.stamped(data) if stamps is not None else data
        offset += len(data)
        if gap is not None:
            yield dropped(gap.end - gap.begin)
            offset = gap.end
            if stamps is not None:
                stamps.offset = offset


def dropped(count: int) -> bytes:
    """Return the line that replaces a hole, with the number of its bytes."""
    return b"\n[elasticd] %d bytes of output were dropped here: --log-max\n" % count


def line_count(log: OpenLog) -> int:
    """Return the number of lines of a short log; text after the last line end counts as a line."""
    count, offset, last = 0, 0, b"\n"
    while data := log.read(offset, CHUNK_BYTES):
        count += data.count(b"\n")
        offset, last = offset + len(data), data[-1:]
    return count + (last != b"\n")

"""The requested part of a log: its last lines, or the lines since a time.

A log is read by offsets, wherever it stands; the part whose room was given back (`--log-max`) is
passed over, with a line that says so.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from elasticd.control.logs.log_hole import find_gap
from elasticd.control.logs.log_tail import tail_offset
from elasticd.control.logs.log_times import LogTimes, TimedLines

__all__ = ["CHUNK_BYTES", "OpenLog", "LogSlice", "dropped", "line_count", "read_slice"]

CHUNK_BYTES = 1 << 20
"""The size of one read, which is what an agent gives in one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """One stream of a rank in a generation, here or on another node."""

    read: Callable[[int, int], bytes]
    """Returns the bytes from an offset on, as many as asked for or fewer; none at the end."""
    size: Callable[[], int]
    """The size of the log by now."""
    times: Callable[[], LogTimes]
    """When how much of it had been written; only asked for if that is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """The part of a log that is to be shown."""

    lines: int | None = None
    """The number of last lines; None for all."""
    since_unix_s: float | None = None
    """What was written from this time on, by the clock of its node; None for all."""
    has_stamps: bool = False
    """True if the time stands before each line."""

    @property
    def is_whole(self) -> bool:
        return self.lines is None and self.since_unix_s is None

    def begin(self, log: OpenLog) -> int | None:
        """Return the offset from which it is shown; None if nothing is."""
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
        """Return what puts the times before the lines from there on, if they are wanted.

        `is_live`: a line without a note was written just now.
        """
        if not self.has_stamps:
            return None
        return TimedLines(log.times(), begin, now_s=time.time if is_live else None)


def read_slice(log: OpenLog, wanted: LogSlice) -> Iterator[bytes]:
    """Yield the wanted part of a log, as the log is now."""
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
    """Return the line that says what is missing in place of a hole."""
    return b"\n[elasticd] %d bytes of output were dropped here: --log-max\n" % count


def line_count(log: OpenLog) -> int:
    """Return the number of lines of a short log; text after the last line end is one."""
    count, offset, last = 0, 0, b"\n"
    while data := log.read(offset, CHUNK_BYTES):
        count += data.count(b"\n")
        offset, last = offset + len(data), data[-1:]
    return count + (last != b"\n")

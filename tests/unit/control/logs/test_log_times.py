"""When which part of a log was written."""

import time

from elasticd.control.logs.console import ERR, OUT
from elasticd.control.logs.log_times import NO_STAMP, LogTimes, TimedLines, times_line

NOTES = (
    times_line(1000.7, 10, 0)
    + times_line(1002.0, 10, 5)
    + b"damaged\n1003 -1 x\n"
    + times_line(1010.0, 30, 5)
    + b"1012 4"
)


def test_notes_of_each_stream_are_read() -> None:
    """A stream that did not grow has no note of its own; what is damaged is left out."""
    assert LogTimes.parse(NOTES, OUT) == LogTimes([10, 30], [1000, 1010])
    assert LogTimes.parse(NOTES, ERR) == LogTimes([5], [1002])


def test_what_was_written_since_begins_behind_the_note_before() -> None:
    """Rather a line too many than one too few; without notes everything is shown."""
    times = LogTimes.parse(NOTES, OUT)
    asked = (0.0, 1000.0, 1000.5, 1010.0, 1011.0)
    assert [times.offset_since(at) for at in asked] == [0, 0, 10, 10, None]
    assert LogTimes().offset_since(1e9) == 0


def test_each_line_gets_the_time_by_which_it_stood_there() -> None:
    """Also one that comes in pieces; a carriage return begins no line."""
    lines = TimedLines(LogTimes.parse(NOTES, OUT), 0)
    first, second = (
        time.strftime("%Y-%m-%d %H:%M:%S ", time.localtime(at)).encode() for at in (1000, 1010)
    )
    shown = lines.stamped(b"12345678") + lines.stamped(b"9\nab\rcd\n") + lines.stamped(b"x" * 20)
    assert shown == first + b"123456789\n" + second + b"ab\rcd\n" + NO_STAMP + b"x" * 20
    assert lines.stamped(b"") == b"" and lines.offset == 36


def test_clock_that_was_set_back_keeps_the_order() -> None:
    """By an hour, while the job prints: what came after it is not from before."""
    noted = b"".join(times_line(*each) for each in ((5_000, 10, 0), (1_400, 20, 0), (1_402, 30, 0)))
    times = LogTimes.parse(noted, OUT)
    assert [times.offset_since(at_s) for at_s in (1_401, 4_999, 5_000, 5_001)] == [0, 0, 0, None]
    assert times.at(30) == 1_402

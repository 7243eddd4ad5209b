"""The newest lines of the log are in memory, and never too many."""

import io

import pytest

from elasticd.telemetry import log, log_ring
from elasticd.telemetry.log_ring import LogRing


class FullDisk(io.StringIO):
    """Takes nothing."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_the_newest_lines_stay_in_their_order() -> None:
    ring = LogRing(3)
    for number in range(5):
        ring.add(str(number))
    assert ring.lines() == ["2", "3", "4"]


def test_long_lines_are_cut_and_count_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracebacks again and again must not become memory."""
    monkeypatch.setattr(log_ring, "LINE_LIMIT", 10)
    monkeypatch.setattr(log_ring, "ALL_LIMIT", 25)
    ring = LogRing(100)
    for letter in "abcd":
        ring.add(letter * 50)
    assert ring.lines() == ["c" * 10, "d" * 10]


def test_nothing_is_kept_where_nobody_wants_it() -> None:
    ring = LogRing(0)
    ring.add("x")
    assert ring.lines() == []


def test_what_is_logged_can_be_asked_for_also_where_stderr_takes_nothing() -> None:
    """A full disk behind the log is just when somebody asks."""
    log.configure(True, "info", FullDisk(), lines_kept=2)
    for number in range(3):
        log.get_logger().info("a.happened", number=number)
    log.get_logger().debug("a.detail")
    found = log.recent_lines()
    log.configure(True, "info", io.StringIO())
    assert [line.split(",")[0] for line in found] == ['{"number": 1', '{"number": 2']
    assert log.recent_lines() == []

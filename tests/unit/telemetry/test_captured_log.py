"""What a test captures of the log is its own, whatever else runs in its process."""

import threading
from pathlib import Path

from elasticd.telemetry.log import get_logger
from tests.fixtures.captured_log import captured_log

TESTS = Path(__file__).parents[2]

log = get_logger()


def say(*events: str) -> None:
    for event in events:
        log.info(event, job="A")


def of_another_thread(*events: str) -> None:
    thread = threading.Thread(target=say, args=events)
    thread.start()
    thread.join()


def test_thread_of_an_earlier_test_is_not_captured() -> None:
    """It may log whenever it likes, and a test asserts the whole list."""
    with captured_log() as lines:
        say("one.begun")
        of_another_thread("other.begun")
    say("two.begun")
    assert lines == [{"event": "one.begun", "job": "A", "log_level": "info"}]


def test_events_that_are_named_come_from_all_threads() -> None:
    """Where the line is that of a thread which the test began."""
    with captured_log("one.begun", "one.ended") as lines:
        of_another_thread("one.begun", "other.begun")
        say("other.ended", "one.ended")
    assert [line["event"] for line in lines] == ["one.begun", "one.ended"]


def test_no_test_captures_what_all_threads_log() -> None:
    """An exact list of those lines is one that anybody may add to."""
    known = [TESTS / "fixtures" / "captured_log.py", Path(__file__)]
    users = [path for path in TESTS.rglob("*.py") if path not in known]
    assert [path for path in users if "capture_logs" in path.read_text()] == []

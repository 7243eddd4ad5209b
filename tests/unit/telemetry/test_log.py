"""The log never ends who writes it: a full disk or a closed pipe costs lines, and that is said."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.telemetry import log
from tests.fixtures.patience import patience_s


class FullDisk(io.StringIO):
    """A file on a disk that may be full."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def closed_pipe() -> io.TextIOWrapper:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    return os.fdopen(write_fd, "w")


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "exception"])
def test_a_full_disk_and_a_closed_pipe_end_nobody(level: str) -> None:
    """Whatever the call, whatever the keys."""
    with open("/dev/full", "w") as full:
        for stream in (full, closed_pipe()):
            log.configure(True, "debug", stream)
            getattr(log.get_logger(), level)("world.committed", text="\udcff")
            with pytest.raises(OSError):  # noqa: PT011  # What stands in its buffer must go nowhere.
                stream.close()


def test_a_closed_file_ends_nobody() -> None:
    """Python answers with another error than the system does."""
    stream = io.StringIO()
    stream.close()
    log.configure(True, "info", stream)
    log.get_logger().info("world.committed")


@pytest.mark.parametrize("is_json", [True, False])
def test_how_many_lines_were_lost_is_said_when_there_is_room_again(is_json: bool) -> None:
    """Once, before the first line that is written."""
    stream = FullDisk()
    log.configure(is_json, "info", stream)
    logger = log.get_logger()
    logger.info("a.lost")
    logger.info("b.lost")
    stream.is_full = False
    logger.info("c.kept")
    logger.info("d.kept")
    gap, first, second = stream.getvalue().splitlines()
    assert "log.lines_lost" in gap and "2" in gap
    assert "c.kept" in first and "d.kept" in second
    if is_json:
        assert json.loads(gap)["lines"] == 2


HANGING_DISK = """
import io, json, sys, time
from threading import Event
from elasticd.telemetry import log, log_thread

class HangingDisk(io.StringIO):
    def __init__(self):
        super().__init__()
        self.is_reached, self.goes_on = Event(), Event()

    def write(self, text):
        self.is_reached.set()
        self.goes_on.wait()
        return super().write(text)

def wait_for(name):
    while name not in disk.getvalue():
        time.sleep(0.001)

log_thread.LINES_HELD = 3
disk = HangingDisk()
log.configure(True, "info", disk, has_thread=True)
logger = log.get_logger()
logger.info("a.kept")
disk.is_reached.wait()
for name in ("b.kept", "c.kept", "d.kept", "e.lost", "f.lost"):
    logger.info(name)  # It would wait here for ever.
disk.goes_on.set()
wait_for("d.kept")
logger.info("g.kept")
wait_for("g.kept")
sys.stdout.write(disk.getvalue())
"""
"""In a process of its own: threads of other tests may log too, and three lines have room."""


def test_nobody_who_logs_waits_for_a_disk_that_hangs() -> None:
    """The owner of an agent logs, and renews a lease. What does not fit is counted and said."""
    done = subprocess.run(
        [sys.executable, "-c", HANGING_DISK],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience_s(60.0),
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["event"][0] for each in said] == ["a", "b", "c", "d", "l", "g"]
    assert said[4]["event"] == "log.lines_lost" and said[4]["lines"] == 2


def test_what_was_logged_last_is_written_before_the_process_ends() -> None:
    """However it leaves, but by a kill."""
    script = (
        "from elasticd.telemetry import log\n"
        "log.configure(True, has_thread=True)\n"
        "for number in range(100):\n"
        "    log.get_logger().info('world.committed', number=number)\n"
        "raise SystemExit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert [json.loads(line)["number"] for line in done.stderr.splitlines()] == list(range(100))


def test_a_process_is_started_also_where_its_log_cannot_be_opened(tmp_path: Path) -> None:
    """It writes to nowhere then."""
    log.configure(True, "info", io.StringIO())
    (tmp_path / "file").touch()
    with log.open_log(tmp_path / "file" / "agent.log") as nowhere:
        nowhere.write(b"hello")
    for _ in range(2):
        with log.open_log(tmp_path / "agents" / "agent.log") as file:
            file.write(b"hello")
    assert (tmp_path / "agents" / "agent.log").read_bytes() == b"hellohello"

"""The log never ends who writes it: a full disk or a closed pipe costs lines, and that is said."""

import io
import json
import os
from pathlib import Path

import pytest

from elasticd.telemetry import log


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

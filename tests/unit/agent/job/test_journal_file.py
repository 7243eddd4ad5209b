"""The file of a job's events: an aid that must not end what it watches."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from elasticd.records.ids import Incarnation, JobName
from elasticd_agent.job import journal_file
from elasticd_agent.job.journal_file import JournalFile
from tests.fixtures.patience import patience_s

JOB, LIFE = JobName("job"), Incarnation("l.1")


def never() -> str:
    raise AssertionError("no line is made where nothing is written")


def until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + patience_s(20.0)
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_lines_stand_in_the_file_of_the_incarnation(tmp_path: Path) -> None:
    """Before its end, too: whoever looks does so since the agent hangs."""
    file = JournalFile(tmp_path / "events", JOB, LIFE)
    file.write(lambda: "one")
    path = tmp_path / "events" / "job.l.1.jsonl"
    until(lambda: path.exists() and path.read_text() == "one\n")
    file.write(lambda: "two")
    file.close()
    assert path.read_text() == "one\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o600, "a job's environment stands in it"
    file.write(never)


def test_without_a_folder_no_line_is_even_made(tmp_path: Path) -> None:
    """It costs an event nothing."""
    file = JournalFile(None, JOB, LIFE)
    file.write(never)
    file.close()


def test_folder_that_cannot_be_used_is_no_harm(tmp_path: Path) -> None:
    """A full disk, a file in its place."""
    (tmp_path / "events").touch()
    file = JournalFile(tmp_path / "events", JOB, LIFE)
    until(lambda: not file.is_open)
    file.write(never)
    file.close()


def test_without_a_thread_left_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent would else end as it begins a job, with the workers of all others."""

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    file = JournalFile(tmp_path, JOB, LIFE)
    file.write(never)
    file.close()
    assert not list(tmp_path.iterdir())


def test_journal_with_a_gap_is_ended(tmp_path: Path) -> None:
    """It would not replay."""
    (tmp_path / "job.l.1.jsonl").symlink_to("/dev/full")
    file = JournalFile(tmp_path, JOB, LIFE)
    file.write(lambda: "one")
    until(lambda: not file.is_open)
    file.write(never)


def test_disk_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody reads: to open it lasts for ever, as a dead NFS server does."""
    monkeypatch.setattr(journal_file, "LIMIT", 3)
    os.mkfifo(tmp_path / "job.l.1.jsonl")
    file = JournalFile(tmp_path, JOB, LIFE)
    for _ in range(3):
        file.write(lambda: "one")
    assert file.is_open
    file.write(never)
    assert not file.is_open
    with (tmp_path / "job.l.1.jsonl").open() as read:
        assert read.read() == "one\n" * 3

"""The file of a job's events: an aid that must not end what it watches."""

from pathlib import Path

from elasticd.records.ids import Incarnation, JobName
from elasticd_agent.journal_file import JournalFile

JOB, LIFE = JobName("job"), Incarnation("l.1")


def never() -> str:
    raise AssertionError("no line is made where nothing is written")


def test_lines_stand_in_the_file_of_the_incarnation(tmp_path: Path) -> None:
    """At once: whoever looks does so since the agent hangs."""
    file = JournalFile(tmp_path / "events", JOB, LIFE)
    file.write(lambda: "one")
    assert (tmp_path / "events" / "job.l.1.jsonl").read_text() == "one\n"
    file.close()
    file.write(never)


def test_without_a_folder_no_line_is_even_made(tmp_path: Path) -> None:
    """It costs an event nothing."""
    JournalFile(None, JOB, LIFE).write(never)


def test_folder_that_cannot_be_used_is_no_harm(tmp_path: Path) -> None:
    """A full disk, a file in its place."""
    (tmp_path / "events").touch()
    JournalFile(tmp_path / "events", JOB, LIFE).write(never)


def test_journal_with_a_gap_is_ended(tmp_path: Path) -> None:
    """It would not replay."""
    (tmp_path / "job.l.1.jsonl").symlink_to("/dev/full")
    file = JournalFile(tmp_path, JOB, LIFE)
    file.write(lambda: "one")
    file.write(never)

"""What `ps` shows of a process."""

import subprocess
import sys

import pytest

from elasticd.telemetry.process_title import worker_title
from tests.fixtures.patience import patience_s

SHOW = """
import os, sys
from pathlib import Path
from elasticd.telemetry import process_title as made
def show():
    title = Path("/proc/self/cmdline").read_bytes().rstrip(b"\\0")
    print(repr(title), Path("/proc/self/comm").read_text().strip())
"""


def shown(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SHOW + program, "a long argument " * 4],
        capture_output=True,
        text=True,
        timeout=patience_s(60.0),
        check=True,
    )
    return done.stdout.splitlines()


def test_title_is_shown_with_the_name_of_the_thread() -> None:
    """Nothing of the arguments is left behind it; what Python knows of them stays."""
    program = (
        "made.set_title('elasticd: j rank 3', 'rank3 and more than fits')\n"
        "show()\n"
        "print(len(sys.argv))\n"
    )
    assert shown(program) == ["b'elasticd: j rank 3' rank3 and more", "2"]


def test_title_longer_than_the_arguments_is_cut() -> None:
    """What stands behind them is the environment, by which a worker's children are found."""
    program = (
        "room = len(Path('/proc/self/cmdline').read_bytes())\n"
        "before = Path('/proc/self/environ').read_bytes()\n"
        "made.set_title('x' * 100_000, 'n')\n"
        "print(len(Path('/proc/self/cmdline').read_bytes().rstrip(b'\\0')) == room - 1)\n"
        "print(Path('/proc/self/environ').read_bytes() == before)\n"
    )
    assert shown(program) == ["True", "True"]


def test_command_line_that_a_person_typed_stays() -> None:
    """A worker under another interpreter is no fork of the pool: its script is in its call."""
    first, second = shown("made.rename('elasticd: j rank 3', 'rank3')\nshow()\nprint()\n")
    assert first.endswith(" rank3") and "a long argument" in first and second == ""


def test_rank_that_changes_is_shown() -> None:
    """A process outlives the world in which it had another one."""
    program = "made.set_title('waits', 's')\nmade.rename('elasticd: j rank 3', 'rank3')\nshow()\n"
    assert shown(program) == ["b'elasticd: j rank 3' rank3"]


@pytest.mark.parametrize(
    ("rank", "title", "name"),
    [("3", "elasticd: j rank 3", "rank3"), (None, "elasticd: j waits for a world", "standby")],
)
def test_workers_are_named_by_job_and_rank(rank: str | None, title: str, name: str) -> None:
    """One that is only prepared has no rank yet."""
    assert worker_title("j", rank) == (title, name)

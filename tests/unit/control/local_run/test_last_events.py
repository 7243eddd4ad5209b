"""What a run does while the last event file is still on its way."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from elasticd.control.local_run.last_events import LIMIT_S, wait_for_event_writers
from elasticd.control.local_run.launch import event_writers
from tests.fixtures.process_mark import wait_for_command_line

WRITES = "import sys; sys.exit(int(sys.stdin.readline()))"
"""A writer that is done when it is told with which exit code to end."""

Writer = subprocess.Popen[str]
Make = Callable[[], Writer]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Writer] = []

    def start() -> Writer:
        command = [sys.executable, "-c", WRITES, "-m", "elasticd.tensorboard.writer", "name"]
        made.append(subprocess.Popen(command, stdin=subprocess.PIPE, text=True))
        wait_for_command_line(made[-1].pid)
        return made[-1]

    yield start
    for child in made:
        child.kill()
        child.wait()


def end(writer: Writer, code: int = 0) -> None:
    assert writer.stdin is not None
    writer.stdin.write(f"{code}\n")
    writer.stdin.close()


def test_last_file_is_awaited_in_silence(make: Make) -> None:
    """Where it takes no time; and where there is no writer nobody waits."""
    said: list[str] = []
    assert wait_for_event_writers(said.append, lambda: False)
    for _ in range(2):
        end(make())
    assert wait_for_event_writers(said.append, lambda: False, now_s=lambda: 0.0)
    assert said == []


def test_what_takes_long_is_said_once(make: Make) -> None:
    """With how long it may take."""
    writer, said = make(), []
    clock = itertools.count()

    def say(sentence: str) -> None:
        said.append(sentence)
        end(writer)

    assert wait_for_event_writers(say, lambda: False, now_s=lambda: min(20.0, float(next(clock))))
    assert len(said) == 1
    assert f"{LIMIT_S:g} s at most" in said[0]


def test_steps_that_were_not_written_are_known(make: Make) -> None:
    """By the exit code of the writer, which ends once it was found: before, it has no name left."""
    writer = make()

    def is_given_up() -> bool:
        if writer.stdin is not None and not writer.stdin.closed:
            end(writer, code=3)
        return False

    assert not wait_for_event_writers(str, is_given_up)


@pytest.mark.parametrize(("code", "is_written"), [(0, True), (3, False)])
def test_writer_that_has_ended_unreaped_is_known_by_its_number(
    make: Make, code: int, is_written: bool
) -> None:
    """It ended between the job's end and the look: no command line is left of it, but its exit
    code is. One that its agent has reaped says nothing."""
    writer, reaped = make(), make()
    end(reaped)
    reaped.wait()
    known = {*event_writers(), reaped.pid}
    end(writer, code)
    os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
    assert writer.pid not in event_writers()
    assert wait_for_event_writers(str, lambda: False, known=known) is is_written


def test_it_is_given_up_in_time_or_by_a_person(make: Make) -> None:
    """The writer is ended afterwards with whatever else is left."""
    make()
    assert not wait_for_event_writers(str, lambda: True)
    clock = itertools.count(step=10)
    assert not wait_for_event_writers(str, lambda: False, now_s=lambda: float(next(clock)))

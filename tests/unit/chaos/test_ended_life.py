"""How long workers run on after their agent: time in which a signal has them stopped is none."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chaos.ended_life import EndedLives
from chaos.history.records import Outlived
from chaos.process import is_stopped

LOOK_S = 0.5
WORKERS = (21, 22)


@dataclass(slots=True)
class EndedNode:
    """A node whose agent is dead, and whose workers are there until they are taken away."""

    name: str = "n1"
    life: int = 1
    is_ending: bool = True
    exit_code: int | None = -9
    workers: tuple[int, ...] = WORKERS

    def workers_of(self, life: int) -> tuple[int, ...]:
        assert life == 1
        return self.workers


def outlived(*, stopped: list[set[int]]) -> Outlived:
    """Look every half second, when these workers are stopped; they are gone at the look after."""
    at_s = 100.0
    now: set[int] = set()
    node: Any = EndedNode()
    lives = EndedLives(is_stopped=lambda pid: pid in now)
    assert lives.begin([node], at_s) == [node]
    for pids in stopped:
        now = pids
        assert lives.look(at_s) == []
        at_s += LOOK_S
        assert lives.begin([node], at_s) == []
    node.workers = ()
    (found,) = lives.look(at_s)
    assert lives.look(at_s, is_last=True) == []
    return found


def test_time_in_which_all_workers_are_stopped_is_told_apart() -> None:
    found = outlived(stopped=[{21, 22}] * 12)
    assert (found.after_s, found.pids) == (6.0, ())
    assert found.stopped_s == 5.5, "in the last half second they may have run"


def test_worker_that_runs_counts_though_the_other_is_stopped() -> None:
    assert outlived(stopped=[{21}] * 12).stopped_s == 0.0


def test_worker_that_runs_on_after_a_stop_counts_before_and_after() -> None:
    both = {21, 22}
    found = outlived(stopped=[set(), set(), both, both, both, set(), set(), set(), set()])
    assert found.after_s == 4.5
    assert found.stopped_s == 1.0, "a change between two looks counts as a time of running"


def test_workers_that_are_there_at_the_end_are_named() -> None:
    node: Any = EndedNode()
    lives = EndedLives(is_stopped=lambda pid: True)
    lives.begin([node], 1.0)
    (found,) = lives.look(2.0, is_last=True)
    assert found.pids == WORKERS


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process.pid
    process.kill()
    process.wait()


def test_state_of_a_stopped_process_is_read_from_the_kernel(sleeper: int) -> None:
    assert not is_stopped(sleeper)
    os.kill(sleeper, signal.SIGSTOP)
    os.waitpid(sleeper, os.WUNTRACED)
    assert is_stopped(sleeper)
    os.kill(sleeper, signal.SIGCONT)
    os.waitpid(sleeper, os.WCONTINUED)
    assert not is_stopped(sleeper)


def test_process_that_is_gone_is_not_stopped() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert not is_stopped(process.pid)

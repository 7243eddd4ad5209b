"""What a run says and does while the last checkpoint is still on its way."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from elasticd.control.local_run.last_checkpoint import (
    CheckpointAwaited,
    CheckpointLost,
    wait_for_keepers,
)
from elasticd.control.local_run.launch import keepers
from tests.fixtures.process_mark import wait_for_command_line

SAVES = "import sys; sys.exit(int(sys.stdin.readline()))"
"""A keeper that is done when it is told with which exit code to end."""


@dataclass
class Keepers:
    """Children that look like keepers to whoever looks at their command lines."""

    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        command = [sys.executable, "-c", SAVES, "-m", "elasticd.keeper", name]
        self.running[name] = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        wait_for_command_line(self.running[name].pid)

    def end(self, name: str, code: int = 0) -> None:
        stdin = self.running[name].stdin
        assert stdin is not None
        if not stdin.closed:
            stdin.write(f"{code}\n")
            stdin.close()


@pytest.fixture
def kept() -> Iterator[Keepers]:
    made = Keepers()
    yield made
    for child in made.running.values():
        child.kill()
        child.wait()


def test_keepers_are_told_from_other_processes(kept: Keepers) -> None:
    """By the module that they run; each says where it is to be asked."""
    kept.start("a")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        assert keepers() == {kept.running["a"].pid: "a"}


def test_the_last_checkpoint_is_awaited_and_said(kept: Keepers) -> None:
    """Bytes of all keepers of this machine; it is over when the last of them is."""
    kept.start("a")
    kept.start("b")
    told: list[object] = []

    def tell(news: object) -> None:
        told.append(news)
        if len(told) == 1:
            kept.end("a")
        elif news == CheckpointAwaited(done_bytes=1, total_bytes=20):
            kept.end("b")

    def how_far(name: str) -> tuple[int, int]:
        return (3, 10) if name == "a" else (1, 20)

    clock = iter(range(0, 10**6, 5))
    assert wait_for_keepers(how_far, tell, lambda: False, now_s=lambda: float(next(clock)))
    assert told[0] == CheckpointAwaited(done_bytes=4, total_bytes=30)
    assert told[-1] == CheckpointAwaited(done_bytes=1, total_bytes=20)


def test_a_quick_save_is_awaited_in_silence(kept: Keepers) -> None:
    """Nobody needs to hear of half a second."""
    kept.start("a")
    kept.end("a")
    told: list[object] = []
    assert wait_for_keepers(lambda name: (0, 0), told.append, lambda: False, now_s=lambda: 0.0)
    assert told == []


def test_a_person_may_give_it_up(kept: Keepers) -> None:
    """At once; the keeper is ended afterwards with whatever else is left."""
    kept.start("a")
    told: list[object] = []
    assert not wait_for_keepers(lambda name: (0, 0), told.append, lambda: True)
    assert told == [CheckpointLost(is_given_up=True)]


def test_a_checkpoint_that_was_not_saved_is_said(kept: Keepers) -> None:
    """The keeper's exit code tells; one that was killed has not saved either."""
    kept.start("a")
    told: list[object] = []

    def end() -> bool:
        kept.end("a", code=3)  # Not before it was seen: a process that has ended has no name.
        return False

    assert not wait_for_keepers(lambda name: (0, 0), told.append, end)
    assert told[-1] == CheckpointLost(is_given_up=False)

"""A private etcd that ends is started again, and a person is told why it ended."""

from dataclasses import dataclass, field

import pytest

from elasticd.control.local_run.etcd_guard import PAUSE_S, RESTARTS, WELL_S, EtcdGuard
from elasticd.errors import EnvironmentProblem, Unavailable


@dataclass
class Etcd:
    """Dead until it is started; where the disk is full it cannot be."""

    pid: int = 1
    ending: str = "exit code 2; no space is left in /runs"
    is_tight: bool = False
    is_dead: bool = True
    can_start: bool = True
    starts: int = 0

    def restart(self) -> None:
        self.starts += 1
        if not self.can_start:
            raise Unavailable("No space is left for it in /runs: free some.")
        self.is_dead = False


@dataclass
class Scene:
    etcd: Etcd = field(default_factory=Etcd)
    at_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guard = EtcdGuard(
            self.etcd,
            self.notes.append,
            is_ended=lambda pid: self.etcd.is_dead,
            now_s=lambda: self.at_s,
        )


def test_the_reason_is_said_and_etcd_started_again() -> None:
    """Not only that it ended."""
    scene = Scene()
    scene.guard()
    scene.guard()
    assert scene.etcd.starts == 1
    said = "the private etcd ended (exit code 2; no space is left in /runs) and is started again"
    assert scene.notes == [said]


def test_a_full_disk_is_waited_out() -> None:
    """With pauses, without a limit, and without saying it each time: somebody may make room."""
    scene = Scene(Etcd(is_tight=True, can_start=False))
    for _ in range(10 * RESTARTS):
        scene.guard()
        scene.guard()
        scene.at_s += PAUSE_S
    assert scene.etcd.starts == 10 * RESTARTS
    assert len(scene.notes) == 1 and "free some" in scene.notes[0]
    scene.etcd.can_start = True
    scene.guard()
    assert scene.notes[1].endswith("is started again")


def test_an_etcd_that_ends_again_and_again_ends_the_run() -> None:
    """With the reason: nobody could ever look at it or stop it otherwise."""
    scene = Scene(Etcd(ending="killed by SIGSEGV"))
    for _ in range(RESTARTS):
        scene.etcd.is_dead = True
        scene.guard()
    scene.etcd.is_dead = True
    with pytest.raises(EnvironmentProblem, match=r"again and again .killed by SIGSEGV"):
        scene.guard()
    assert len(scene.notes) == RESTARTS


def test_an_etcd_that_ends_once_in_a_while_ends_no_run_of_weeks() -> None:
    """Somebody's memory is short each night: the run ended with the sixth of them."""
    scene = Scene(Etcd(ending="killed by SIGKILL"))
    for _ in range(3 * RESTARTS):
        scene.etcd.is_dead = True
        scene.guard()
        scene.at_s += WELL_S
    assert scene.etcd.starts == 3 * RESTARTS


def test_tries_that_fail_make_no_etcd_well() -> None:
    """Also where the first of them comes after weeks."""
    scene = Scene(Etcd(can_start=False))
    scene.at_s = 100 * WELL_S
    for _ in range(RESTARTS):
        scene.guard()
        scene.at_s += PAUSE_S
    with pytest.raises(EnvironmentProblem, match="again and again"):
        scene.guard()

"""Every committed step that the scripts under test tell of, and the waits on them.

Workers live through changes of world here, so a process is known by its pid, and what counts is in
which world it made which step. A thread reads all that comes, so that no worker waits for us.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.mailbox import Mailbox

__all__ = ["Commit", "Commits"]

FRESH_S = 0.5
"""A process that took a step this lately is alive; a step takes 10 to 30 ms."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One line of a script: `NAME SECONDS PID BEGAN RANK WORLD GENERATION [STEP]`."""

    name: str
    """`stepped`: a step was committed. `ready`: imported, built, about to train."""
    at_s: float
    pid: int
    rank: int
    world: int
    generation: int
    step: int


@dataclass(slots=True)
class _Stay:
    """A process's time in its present world."""

    newest: Commit
    steps: int


class Commits(Mailbox):
    """The socket to which workers send, at `path`."""

    def __init__(self, folder: Path) -> None:
        self.all: list[Commit] = []
        """In the order in which they came; only grows."""
        self._stays: dict[int, _Stay] = {}
        super().__init__(folder, self._note)

    def world(self) -> dict[int, Commit]:
        """Newest step of each rank of the world that trained last, and lately."""
        with self.news:
            return {rank: stay.newest for rank, stay in self._world(()).items()}

    def wait_steady(
        self, world: int, steps: int, timeout_s: float, without: Collection[int] = ()
    ) -> dict[int, Commit] | None:
        """Wait until each rank of a world of this size took so many steps in it and still trains.

        Processes in `without` do not count. None if that did not come in time.
        """

        def found() -> dict[int, Commit] | None:
            ranks = self._world(without)
            is_steady = len(ranks) == world and all(
                stay.steps >= steps and stay.newest.world == world for stay in ranks.values()
            )
            return {r: stay.newest for r, stay in ranks.items()} if is_steady else None

        return self.wait(found, timeout_s)

    def wait_for(
        self, is_it: Callable[[Commit], bool], since: int, timeout_s: float
    ) -> Commit | None:
        """Wait for the first such commit in `all[since:]`; None if it did not come in time."""
        at = since

        def found() -> Commit | None:
            nonlocal at
            while at < len(self.all):
                at += 1
                if is_it(self.all[at - 1]):
                    return self.all[at - 1]
            return None

        return self.wait(found, timeout_s)

    def _world(self, without: Collection[int]) -> dict[int, _Stay]:
        now_s = time.monotonic()
        fresh = [
            stay
            for pid, stay in self._stays.items()
            if pid not in without and now_s - stay.newest.at_s < FRESH_S
        ]
        newest = max((stay.newest.generation for stay in fresh), default=0)
        return {stay.newest.rank: stay for stay in fresh if stay.newest.generation == newest}

    def _note(self, words: list[str]) -> None:
        name, at_s, pid, _, *rest = words
        rank, world, generation = (int(number) for number in rest[:3])
        step = int(rest[3]) if len(rest) > 3 else 0
        one = Commit(name, float(at_s), int(pid), rank, world, generation, step)
        self.all.append(one)
        if name == "stepped":
            self._count(one)

    def _count(self, one: Commit) -> None:
        stay = self._stays.get(one.pid)
        if stay is not None and (stay.newest.world, stay.newest.generation) == (
            one.world,
            one.generation,
        ):
            stay.newest, stay.steps = one, stay.steps + 1
        else:
            self._stays[one.pid] = _Stay(one, 1)

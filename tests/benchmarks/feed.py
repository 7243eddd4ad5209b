"""What the script under test says, and the waits on it.

A thread reads all that comes, so that no worker ever waits for us, and keeps per process only how
far it came. A process is named by its pid and its beginning.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.mailbox import Mailbox

__all__ = ["ORDER", "Feed", "Progress"]

ORDER = ("began", "imported", "joined", "wrapped", "stepped")
"""How far a worker came: its script's first line, torch imported, process group made, model
wrapped in DDP, first step done."""

FRESH_S = 0.5
"""A process that took a step this lately is alive; a step takes about 15 ms."""

T = TypeVar("T")
Process = tuple[int, str]


@dataclass(slots=True, kw_only=True)
class Progress:
    """One worker process, from its first line to its last step so far."""

    pid: int
    rank: int
    world: int
    generation: int
    first_s: dict[str, float] = field(default_factory=dict)
    """When it first came so far, by the names in ORDER."""
    steps: int = 0
    last_step_s: float = 0.0


class Feed(Mailbox):
    """The socket to which workers send, at `path`."""

    def __init__(self, folder: Path) -> None:
        self._seen: dict[Process, Progress] = {}
        super().__init__(folder, self._note)

    def known(self) -> frozenset[Process]:
        """All processes seen so far."""
        with self.news:
            return frozenset(self._seen)

    def wait_steady(
        self, world: int, steps: int, timeout_s: float, known: frozenset[Process] = frozenset()
    ) -> Mapping[int, Progress] | None:
        """Wait until each rank of a world of this size took so many steps and still trains.

        Only processes that are not `known` count. None if that did not come in time.
        """

        def found() -> dict[int, Progress] | None:
            now_s = time.monotonic()
            ranks = {
                each.rank: each
                for process, each in self._seen.items()
                if process not in known
                and each.world == world
                and each.steps >= steps
                and now_s - each.last_step_s < FRESH_S
            }
            return ranks if len(ranks) == world else None

        return self.wait(found, timeout_s)

    def wait_first_step(self, known: frozenset[Process], timeout_s: float) -> Progress | None:
        """Wait for the first step of any process that is not known; None if none came."""

        def found() -> Progress | None:
            new = [
                each
                for process, each in self._seen.items()
                if process not in known and each.steps > 0
            ]
            return min(new, key=lambda each: each.first_s["stepped"], default=None)

        return self.wait(found, timeout_s)

    def _note(self, words: list[str]) -> None:
        name, at_s, pid, began, rank, world, generation = words
        each = self._seen.setdefault(
            (int(pid), began),
            Progress(pid=int(pid), rank=int(rank), world=int(world), generation=int(generation)),
        )
        each.first_s.setdefault(name, float(at_s))
        if name == "stepped":
            each.steps += 1
            each.last_step_s = float(at_s)

"""The ranks' file, read while it grows: what the runner must know to time its next fault."""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from chaos.history.records import Acted, Applied, Entered, Took, parse_line

__all__ = ["Tail"]

MOST_STEPS = 256
"""Steps that may still be completed by a late line."""


@dataclass(slots=True)
class _Step:
    size: int
    taken_s: float
    took: int = 0
    applied: int = 0


class Tail:
    def __init__(self, path: Path, *, full_size: int) -> None:
        self._path, self._full_size = path, full_size
        self._offset = 0
        self._steps: OrderedDict[tuple[int, int], _Step] = OrderedDict()
        self.acted: dict[int, Acted] = {}
        """Orders that were carried out, by the fault's number."""
        self.ranks: dict[str, Entered] = {}
        """The newest entry of each process."""
        self.generation = 0
        self.newest_step = 0
        self.full_taken_s = 0.0
        """When the newest step began that was committed at full size."""
        self.commits = 0
        self.full_commits = 0
        """The commits at full size."""

    def read(self) -> None:
        """Take in what is new."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return
        if whole:
            self._offset += len(whole) + 1
            for line in whole.decode(errors="replace").split("\n"):
                if line:
                    self._take(line)

    def is_full_since(self, at_s: float) -> bool:
        """Return whether a step that began after this time was committed at full size."""
        return self.full_taken_s > at_s

    def _take(self, line: str) -> None:
        match parse_line(line):
            case Entered() as entered:
                self.ranks[entered.process] = entered
                self.generation = max(self.generation, entered.generation)
            case Took() as took:
                step = self._steps.setdefault(
                    (took.generation, took.step), _Step(took.size, took.at_s)
                )
                step.taken_s = min(step.taken_s, took.at_s)
                step.took += 1
                while len(self._steps) > MOST_STEPS:
                    self._steps.popitem(last=False)
            case Applied() as applied:
                self.newest_step = max(self.newest_step, applied.step)
                found = self._steps.get((applied.generation, applied.step))
                if found is not None:
                    found.applied += 1
                    if found.applied == found.took == found.size:
                        self.commits += 1
                        if found.size == self._full_size:
                            self.full_commits += 1
                            self.full_taken_s = max(self.full_taken_s, found.taken_s)
            case Acted() as acted:
                self.acted[acted.number] = acted
            case _:
                pass

"""Where everything stands below a checkpoint's URL. Pure.

Names are made of numbers only. So none can lead out of the folder, and a reader can compute every
name that it needs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from elasticd.checkpoint.format import json_read

__all__ = [
    "COMMITS",
    "HINT",
    "LAST_STEP",
    "LEASES",
    "STEPS",
    "TRIALS",
    "Snapshot",
    "damage_name",
    "entry_name",
    "fragment_name",
    "is_part_name",
    "loss_name",
    "part_name",
    "probe_name",
]

COMMITS, STEPS, LEASES, TRIALS = "commits", "steps", "leases", "trials"

HINT = f"{COMMITS}/hint.json"
"""The object that holds a number that the log has reached. It only saves a reader requests, and may
be wrong."""

LAST_STEP = 10**15 - 1
"""The greatest step that a checkpoint may have."""

_FOLDER = re.compile(r"(\d{12,15})-(\d{6,9})-(\d{8,12})", re.ASCII)
_PART = re.compile(r"\d{5,7}-\d-[0-9a-f]{8}-\d{5,7}\.bin", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Snapshot:
    """The name of a copied state: copies of one name, from whichever node, make one whole."""

    run: int
    """How many times a job began to write to this URL."""
    generation: int
    step: int

    @property
    def folder(self) -> str:
        return f"{STEPS}/{self.step:012d}-{self.run:06d}-{self.generation:08d}"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/manifest.json"

    @classmethod
    def of_folder(cls, name: str) -> Self | None:
        """Read the last component of a folder's name; None if the folder is not elasticd's."""
        found = _FOLDER.fullmatch(name)
        if found is None:
            return None
        step, run, generation = map(int, found.groups())
        snapshot = cls(run=run, generation=generation, step=step)
        return snapshot if snapshot.folder == f"{STEPS}/{name}" else None  # Not with zeros more.

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any]) -> Self:
        """Read its fields from a text, which has them under their names.

        Raises: Damaged: a field is missing, or no number that it may be.
        """
        return cls(
            run=json_read.integer(fields, "run", 10**9 - 1),
            generation=json_read.integer(fields, "generation", 10**12 - 1),
            step=json_read.integer(fields, "step", LAST_STEP),
        )

    def __str__(self) -> str:
        return f"step {self.step} (run {self.run}, generation {self.generation})"


def entry_name(number: int) -> str:
    return f"{COMMITS}/{number:012d}.json"


def fragment_name(snapshot: Snapshot, share: int, holder: int) -> str:
    """Return the name of the fragment in which one holder describes the share that it uploaded."""
    return f"{snapshot.folder}/{share:05d}-{holder}.json"


def loss_name(snapshot: Snapshot, share: int, holder: int) -> str:
    """Return the name of the object in which a keeper says that one holder never gets a share."""
    return f"{snapshot.folder}/{share:05d}-{holder}-lost.json"


def damage_name(snapshot: Snapshot) -> str:
    """Return the name of the object in which a keeper says which block of a part is damaged."""
    return f"{snapshot.folder}/damage.json"


def part_name(share: int, holder: int, writer: str, index: int) -> str:
    """Return a part's name inside its folder; each process that writes has its own `writer`."""
    return f"{share:05d}-{holder}-{writer}-{index:05d}.bin"


def probe_name(token: str) -> str:
    """Return the name of the object by which a process finds out how the storage behaves."""
    return f"{TRIALS}/{token}.bin"


def is_part_name(name: str) -> bool:
    return _PART.fullmatch(name) is not None

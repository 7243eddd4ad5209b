"""The names of event files, in the order in which TensorBoard reads them. Pure.

TensorBoard reads the files of a folder in the order of their names, and by default leaves a file as
soon as a later one exists. So a name begins with numbers that only grow: the attempt (a job that
continues the run of an earlier one is a new attempt), the generation, and a number. It ends with
the newest step in the file, so that a writer that continues knows the written steps without reading
the files.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["EventFile", "Place", "newest_before", "place_of", "run_number", "usable_folder"]

UID_LETTERS = 8
_NAME = re.compile(
    r"(?P<run>\d+)/events\.out\.tfevents"
    r"\.(?P<attempt>\d+)\.(?P<generation>\d+)\.(?P<number>\d+)"
    r"\.(?P<uid>\w+)\.(?P<step>\d+)\.(?P<node>.+)"
)
_CLAIM = re.compile(r"(?P<run>\d+)/elasticd\.json")
_ODD = re.compile(r"[^A-Za-z0-9._=+-]")


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class EventFile:
    """The name of one file; the order of these values is the order of the names."""

    run: int
    attempt: int
    generation: int
    number: int
    uid: str
    step: int
    """The last step in the file."""
    node: str

    @property
    def name(self) -> str:
        """Return the name below the job's folder."""
        return (
            f"{self.run}/events.out.tfevents.{self.attempt:06d}.{self.generation:08d}"
            f".{self.number:08d}.{self.uid}.{self.step:012d}.{self.node}"
        )

    @classmethod
    def of(cls, name: str) -> "EventFile | None":
        """Parse a name; return None if the file is not elasticd's."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(
            run=int(found["run"]),
            attempt=int(found["attempt"]),
            generation=int(found["generation"]),
            number=int(found["number"]),
            uid=found["uid"],
            step=int(found["step"]),
            node=found["node"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place where a job writes: a run of TensorBoard, and the number of the job's attempt."""

    run: int
    attempt: int

    @property
    def claim(self) -> str:
        """Return the name of the object that says whose run it is; TensorBoard ignores it."""
        return f"{self.run}/elasticd.json"


def run_number(name: str) -> int:
    """Return the number of the run to which an object belongs; 0 if none."""
    file, claim = EventFile.of(name), _CLAIM.fullmatch(name)
    return file.run if file is not None else int(claim["run"]) if claim is not None else 0


def place_of(names: Iterable[str], uid: str, *, is_new: bool) -> Place | None:
    """Return the place of a job among the objects of its folder; None if the job begins a new run.

    A job that has files continues at their place. Another job continues the newest run, unless it
    begins with its first step (`is_new`).
    """
    names = tuple(names)
    files = [file for name in names if (file := EventFile.of(name)) is not None]
    own = [file for file in files if file.uid == uid]
    if own:
        return Place(run=max(own).run, attempt=max(own).attempt)
    newest = max(map(run_number, names), default=0)
    if is_new or not newest:
        return None
    attempts = [file.attempt for file in files if file.run == newest]
    return Place(run=newest, attempt=max(attempts, default=0) + 1)


def newest_before(names: Iterable[str], place: Place, generation: int) -> EventFile | None:
    """Return the file that TensorBoard reads last, of the files up to this generation."""
    files = [file for name in names if (file := EventFile.of(name)) is not None]
    limit = (place.attempt, generation)
    return max(
        (f for f in files if f.run == place.run and (f.attempt, f.generation) <= limit),
        default=None,
    )


def usable_folder(name: str) -> str:
    """Return a name in a form that every storage accepts as a folder's name."""
    return _ODD.sub("_", name).strip(".")[:100] or "job"

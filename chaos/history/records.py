"""The raw history: what the job's ranks and the runner wrote down, as it happened. Pure.

One file for all ranks, one for the runner, a JSON object a line. All times are CLOCK_BOOTTIME of
the one machine, so they can be compared. Every line begins with a line break of its own: a process
that is killed while it writes tears its own line only.

A process is known by its pid, or by pod and pid: in pods pids repeat.

A rank writes `Took` before any collective of the step and `Applied` when `commit()` has returned.
So a step that others could finish has a `Took` of every rank, whoever dies in between.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

__all__ = [
    "Acted",
    "Applied",
    "Began",
    "Ended",
    "Entered",
    "GaveUp",
    "History",
    "LeftBehind",
    "LeftTrain",
    "Outlived",
    "Record",
    "Status",
    "Struck",
    "Told",
    "Took",
    "Undone",
    "parse_line",
    "to_line",
]


# --- by the ranks -----------------------------------------------------------------------------


class _OfProcess:
    """What one process wrote down of itself."""

    __slots__ = ()
    pid: int
    pod: str

    @property
    def process(self) -> str:
        """Tell the process from all others of the run."""
        return f"{self.pod}:{self.pid}" if self.pod else str(self.pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered(_OfProcess):
    """A rank begins in a generation, with the state of this many applied steps."""

    at_s: float
    generation: int
    rank: int
    size: int
    step: int
    epoch: int
    digest: str
    """The digest of the parameters and of the optimizer's state."""
    pid: int
    node: str
    pod: str = ""
    """And which life of its container; empty: the process is in no pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Took(_OfProcess):
    """A rank has its share of a step and has run it forward; no collective has begun."""

    at_s: float
    generation: int
    rank: int
    size: int
    step: int
    """The number that the step has once it is applied; the first is 1."""
    epoch: int
    samples: tuple[int, ...]
    """Indices into the dataset; none for a repeat with weight 0."""
    loss: float
    """Sum over the share; the step's loss is the sum over all ranks by the number of samples."""
    pid: int
    pod: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied(_OfProcess):
    """`commit()` has applied the step."""

    at_s: float
    generation: int
    rank: int
    step: int
    digest: str
    pid: int
    called_s: float = 0.0
    """When `commit()` was called; 0: not known. It applies a step at once."""
    is_late: bool = False
    """A change of world ended `commit()`, which may have waited for ranks that were cut off."""
    pod: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftTrain(_OfProcess):
    """`train` was left by an exception, or has returned."""

    at_s: float
    generation: int
    rank: int
    step: int
    why: str
    """Type of the exception; empty: returned."""
    pid: int
    pod: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted(_OfProcess):
    """A worker carries out an order of the runner, now."""

    at_s: float
    generation: int
    rank: int
    step: int
    number: int
    """The number of the fault."""
    pid: int
    pod: str = ""


# --- by the runner ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    at_s: float
    scenario: str
    seed: int
    full_size: int
    samples: int
    faults: int
    """How many the schedule has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault, from just before it was brought about."""

    at_s: float
    number: int
    kind: str
    victim: str
    is_overlap: bool
    recover_s: float
    """The time from the fault within which the job should commit again."""
    changes_world: bool
    for_s: float = 0.0
    """The time after which the fault was to be undone; 0: never, or it ends by itself."""
    node: str = ""
    """The node that it struck, or whose worker; empty: none, or an older history lacks it."""
    other_node: str = ""
    """The other node, if the two lost only each other."""
    pid: int = 0
    """The process id of the worker that it struck; 0: it struck none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What `elasticd why` says of a change of world, from the moment at which it said so.

    Written again whenever it says something else.
    """

    at_s: float
    generation: int
    """The generation that began with the change."""
    reason: str
    node: str = ""
    """The node of the worker that failed first; empty: `why` names no worker."""
    rank: int = -1
    of_generation: int = 0
    """The generation in which that worker had that rank."""
    signal: str = ""
    exit_code: int = -1
    exception: str = ""
    lost: tuple[str, ...] = ()
    """Nodes that the world lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What the fault had done is undone: a new start of the agent, SIGCONT, the link's repair."""

    at_s: float
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlived:
    """A life of an agent is over; all its workers were gone so much later, or are still there."""

    at_s: float
    node: str
    life: int
    after_s: float
    pids: tuple[int, ...]
    """The processes that were still there when the runner ended the wait."""
    stopped_s: float = 0.0
    """How long of this all of them were stopped by a signal, and did nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What etcd says of the job, whenever it changed."""

    at_s: float
    phase: str
    generation: int
    restarts: int
    user_errors: int
    node_losses: int
    most_user_errors: int
    most_node_losses: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """The runner waited for something that did not come."""

    at_s: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """A process that was there after the end of everything."""

    at_s: float
    pid: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The job's end, as the runner saw it."""

    at_s: float
    phase: str
    message: str


Record = (
    Entered
    | Took
    | Applied
    | LeftTrain
    | Acted
    | Began
    | Struck
    | Undone
    | Told
    | Outlived
    | Status
    | GaveUp
    | LeftBehind
    | Ended
)

_KINDS: dict[str, type[Record]] = {
    kind.__name__: kind
    for kind in (
        *(Entered, Took, Applied, LeftTrain, Acted, Began, Struck, Undone, Outlived, Status),
        *(GaveUp, LeftBehind, Ended, Told),
    )
}
_NAMES = {kind: tuple(field.name for field in fields(kind)) for kind in _KINDS.values()}


def to_line(record: Record) -> str:
    """Spell a record, with its line breaks."""
    kind = type(record)
    values = {name: getattr(record, name) for name in _NAMES[kind]}
    return "\n" + json.dumps({"is": kind.__name__, **values}, separators=(",", ":")) + "\n"


def parse_line(line: str) -> Record | None:
    """Read one line; None: it is torn."""
    try:
        values = json.loads(line)
        kind = _KINDS[values.pop("is")]
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = tuple(value)
        return kind(**values)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class History:
    """All records of a run, in the order of their times."""

    def __init__(self, records: Iterable[Record], *, torn: int = 0) -> None:
        self.torn = torn
        self.entered: list[Entered] = []
        self.took: list[Took] = []
        self.applied: list[Applied] = []
        self.left: list[LeftTrain] = []
        self.acted: list[Acted] = []
        self.struck: list[Struck] = []
        self.undone: list[Undone] = []
        self.told: list[Told] = []
        self.outlived: list[Outlived] = []
        self.statuses: list[Status] = []
        self.gave_up: list[GaveUp] = []
        self.left_behind: list[LeftBehind] = []
        self.began: Began | None = None
        self.ended: Ended | None = None
        self._add(sorted(records, key=lambda record: record.at_s))

    @classmethod
    def read(cls, lines: Iterable[str]) -> "History":
        """Read the lines of all files."""
        torn = 0

        def records() -> Iterator[Record]:
            nonlocal torn
            for line in lines:
                if line.strip():
                    record = parse_line(line)
                    if record is None:
                        torn += 1
                    else:
                        yield record

        found = list(records())
        return cls(found, torn=torn)

    def _add(self, records: Iterable[Record]) -> None:
        lists: dict[type[Record], list[object]] = {
            Entered: self.entered,  # type: ignore[dict-item]
            Took: self.took,  # type: ignore[dict-item]
            Applied: self.applied,  # type: ignore[dict-item]
            LeftTrain: self.left,  # type: ignore[dict-item]
            Acted: self.acted,  # type: ignore[dict-item]
            Struck: self.struck,  # type: ignore[dict-item]
            Undone: self.undone,  # type: ignore[dict-item]
            Told: self.told,  # type: ignore[dict-item]
            Outlived: self.outlived,  # type: ignore[dict-item]
            Status: self.statuses,  # type: ignore[dict-item]
            GaveUp: self.gave_up,  # type: ignore[dict-item]
            LeftBehind: self.left_behind,  # type: ignore[dict-item]
        }
        for record in records:
            if isinstance(record, Began):
                self.began = record
            elif isinstance(record, Ended):
                self.ended = record
            else:
                lists[type(record)].append(record)

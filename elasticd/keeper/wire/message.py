"""What a worker and its keeper say to each other. Every question has exactly one answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Tensor
from elasticd.checkpoint.format.share_layout import Layout

__all__ = ["ANSWERS", "LONGER", "QUESTIONS"]

LONGER = "It takes longer than that."


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A generation began here at this step; asked by its rank 0. Answered by Opened."""

    generation: int
    step: int
    run: int = 0
    """0: find out, which takes requests to the storage; else it is written down later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A share of the state, laid out like this."""

    id: int
    share: int
    shares: int
    holder: int
    layout: Layout
    tensors: tuple[Tensor, ...] = ()
    """Of the whole state, with share 0."""
    is_alone: bool = False
    """No other node has these bytes, so they are sent to one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """From now on these, by their ids, instead of those before. Answered by Done."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Give a buffer for this plan. Answered by Claimed, with its file unless it is known."""

    plan: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    buffer: int
    """-1: there is none now; go on without."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The buffer holds this snapshot, whole. Answered by Done."""

    plan: int
    buffer: int
    snapshot: Snapshot
    epoch: int
    world_size: int
    skeleton: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a keeper lets those of other nodes in."""

    host: str
    port: int
    token: str = field(repr=False)
    """Who knows it is let in: 32 random bytes in hexadecimal; never in a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meet:
    """Where do keepers of other nodes reach this one? Answered by Met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    door: Door | None
    """None: nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """From now on send what is alone in my plans to this keeper too. Answered by Done."""

    door: Door


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Nothing came of a claim. Answered by Done."""

    plan: int
    buffer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """How do things stand? Answered by Standing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    is_busy: bool
    """A snapshot is on its way to storage."""
    durable_step: int
    """Of the newest checkpoint this keeper knows; -1: none."""
    notes: tuple[str, ...] = ()
    """Sentences for people, each told once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HowFar:
    """How far is what is on its way? For people who wait. Answered by Progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of what this keeper uploads itself, and is not durable yet."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """Wait until this snapshot is durable or given up. Answered by Awaited."""

    snapshot: Snapshot
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    is_durable: bool
    why: str = ""
    """Why it is not; LONGER if it still may be."""

    @property
    def has_failed(self) -> bool:
        """It is not durable, and nobody tries any more."""
        return not self.is_durable and self.why not in ("", LONGER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """Which is the newest good checkpoint below this number (0: of all)? Answered by Found."""

    below: int = 0
    settle_s: float = 0.0
    """Wait first, for so long at most, until what is being saved is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Wait until rank 0 opened this generation; which checkpoint did it restore?

    Answered by Joined.
    """

    generation: int
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    run: int
    number: int
    """0: none, the training began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    number: int
    """0: there is none."""
    snapshot: Snapshot | None = None
    notes: tuple[str, ...] = ()
    """What was passed over, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The manifest of a checkpoint. Answered by Shared."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Pieces of a checkpoint, verified; placed as `fetch.extents` says. Answered by Shared."""

    number: int
    pieces: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The same in batches, for this worker alone. Answered by Batch."""

    number: int
    pieces: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """The next batch of the stream; the one before is done with. Answered by Batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The next so many pieces, placed as `fetch.extents` says; the slot's file comes once."""

    slot: int
    count: int
    """0: that was all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Memory with what was asked for; its file comes along."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """Which snapshots are in memory here? Answered by Listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    snapshot: Snapshot
    share: int
    shares: int
    holder: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Give me what is held here. Answered by Mapped, with the file."""

    held: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    layout: Layout
    epoch: int = 0
    skeleton: str = ""
    tensors: tuple[Tensor, ...] = ()
    sums: tuple[tuple[str, ...], ...] = ()
    """Of each part, those of its blocks, as they were when the share was whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Instead of any answer."""

    kind: str
    """Name of the error's class in `elasticd.errors`, or Damaged."""
    why: str


def _table(*kinds: type) -> Mapping[str, type]:
    return {kind.__name__: kind for kind in kinds}


QUESTIONS = _table(
    Open, Plans, Claim, Taken, Dropped, Meet, Mirror, Ask, Await, Find, Join, Read, Fetch, Stream,
    More, List, Map, HowFar
)  # fmt: skip
ANSWERS = _table(
    Opened, Joined, Claimed, Met, Standing, Awaited, Found, Shared, Batch, Listed, Mapped, Done,
    Failed, Progress
)  # fmt: skip

"""The messages between a worker and its keeper. Every question has exactly one answer.

A class with a `TAG` goes by that name on the wire, where workers and keepers of other versions know
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from elasticd.channel import wire
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Tensor
from elasticd.checkpoint.format.piece_rows import PieceRows
from elasticd.checkpoint.format.share_layout import Layout

__all__ = ["ANSWERS", "LONGER", "QUESTIONS", "Saving"]

LONGER = "It takes longer than that."


class Saving(StrEnum):
    """What the keeper does with a snapshot besides holding it in memory."""

    USUAL = "usual"
    """It is uploaded; no other is taken meanwhile."""
    PINNED = "pinned"
    """It is uploaded, and newer ones, which are taken meanwhile, leave its memory alone."""
    NONE = "none"
    """Nothing: a newer one takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Say that a generation began at this step; rank 0 sends it. The answer is Opened."""

    generation: int
    step: int
    run: int = 0
    """The run; 0 to find it out, which takes requests to the storage; otherwise it is written down
    later."""
    origin: int | None = None
    """The number of the checkpoint that the generation went on from, which Join asks for; 0 if it
    began anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A share of the state, and its layout in memory."""

    id: int
    share: int
    shares: int
    holder: int
    layout: Layout
    tensors: tuple[Tensor, ...] = ()
    """The tensors of the whole state, with share 0."""
    is_alone: bool = False
    """True if no other node has these bytes, so that they are sent to one."""
    is_only_copy: bool = False
    """True if no rank of another node copies these bytes, whether they are sent to one or not."""
    buffers: int = 2
    """How many buffers there may be: a third one where snapshots are taken beside an upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """Replace all earlier plans by these, which have ids. The answer is Done."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Ask for a buffer for this plan.

    The answer is Claimed, with the buffer's file unless the worker has it.
    """

    plan: int
    snapshot: Snapshot | None = None
    """The snapshot that the buffer is for, if this process has handed none of it to any keeper;
    None if it may have, or if the memory is taken ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    buffer: int
    """The number of the buffer; -1 if there is none now, and the worker goes on without."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSnapshot:
    """Say that the buffer holds this snapshot, complete. It is answered by Done."""

    TAG: ClassVar = "Taken"

    plan: int
    buffer: int
    snapshot: Snapshot
    epoch: int
    world_size: int
    skeleton: str = ""
    saving: Saving = Saving.USUAL
    is_on_one_node: bool = False
    """True if all ranks of its world are on this node, so that no other keeper gets a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperAddress:
    """The address at which a keeper accepts those of other nodes."""

    host: str
    port: int
    token: str = field(repr=False)
    """The token that proves who may connect: 32 random bytes in hexadecimal; never in a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAddress:
    """Ask for the address at which keepers of other nodes reach this one. The answer is Address."""

    TAG: ClassVar = "Meet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    TAG: ClassVar = "Met"
    door: KeeperAddress | None
    """The address; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Send the shares that only this worker has to this keeper too, from now on. It is answered by
    Done.
    """

    door: KeeperAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBuffer:
    """Say that a claimed buffer was not filled. It is answered by Done."""

    TAG: ClassVar = "Dropped"

    plan: int
    buffer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetStatus:
    """Ask for the state of this worker's snapshots. It is answered by Status."""

    TAG: ClassVar = "Ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    TAG: ClassVar = "Standing"
    is_busy: bool
    """True if a snapshot is being uploaded."""
    durable_step: int
    """The step of the newest checkpoint that this keeper knows; -1 if none."""
    is_sending: bool = False
    """True if a share is on its way to the next node, and that was not given up for now."""
    awaits_upload: bool = False
    """True if the next snapshot of each step should wait until an upload is done."""
    notes: tuple[str, ...] = ()
    """Sentences for people, each sent once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProgress:
    """Ask how far the uploads are, for people who wait. It is answered by Progress."""

    TAG: ClassVar = "HowFar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the uploads are that this keeper does itself and that are not durable yet."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitDurable:
    """Wait until this snapshot is durable or given up. It is answered by Durability."""

    TAG: ClassVar = "Await"

    snapshot: Snapshot
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    TAG: ClassVar = "Awaited"
    is_durable: bool
    why: str = ""
    """Why it is not durable; LONGER if it still may be."""

    @property
    def has_failed(self) -> bool:
        """Return whether the snapshot is not durable, and no keeper tries to save it any more."""
        return not self.is_durable and self.why not in ("", LONGER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """Ask for the newest good checkpoint below this number (0 for any). It is answered by Found."""

    below: int = 0
    settle_s: float = 0.0
    """How long to wait first, until what is being saved is durable, in seconds."""
    generation: int = 0
    """The generation that asks, where this node's processes of earlier ones have ended: what was
    lost with them is not waited for. 0 if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Wait until rank 0 opened this generation, and ask which checkpoint it restored.

    It is answered by Joined.
    """

    generation: int
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    run: int
    number: int
    """The number of that checkpoint; 0 if there was none, and the training began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    number: int
    """The number; 0 if there is none."""
    snapshot: Snapshot | None = None
    notes: tuple[str, ...] = ()
    """What was passed over, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Ask for the manifest of a checkpoint. It is answered by Shared."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Ask for verified rows of pieces of a checkpoint, placed as `fetch.extents` says.

    It is answered by Shared.
    """

    number: int
    pieces: tuple[PieceRows, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Ask for rows of pieces in batches, for this worker alone. It is answered by Batch."""

    number: int
    pieces: tuple[PieceRows, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """Ask for the next batch of the stream, when the batch before was used.

    It is answered by Batch.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The next pieces, placed as `fetch.extents` says; the slot's file comes once."""

    slot: int
    count: int
    """How many pieces; 0 if there are no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The memory that a question asked for; its file comes with the message."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """Ask which snapshots are in memory here. It is answered by Listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    snapshot: Snapshot
    share: int
    shares: int
    holder: int
    nbytes: int
    is_saved: bool = True
    """True if it is uploaded too, or was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Ask for a share that is held here. It is answered by Mapped, with the file."""

    held: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    layout: Layout
    epoch: int = 0
    skeleton: str = ""
    tensors: tuple[Tensor, ...] = ()
    sums: tuple[tuple[str, ...], ...] = ()
    """The sums of the blocks of each part, computed when the share was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An error instead of any answer."""

    kind: str
    """The name of the error's class in `elasticd.errors`, or Damaged."""
    why: str


def _table(*kinds: type) -> Mapping[str, type]:
    return {wire.tag(kind): kind for kind in kinds}


QUESTIONS = _table(
    Open, Plans, Claim, SaveSnapshot, ReleaseBuffer, GetAddress, Mirror, GetStatus, WaitDurable,
    Find, Join, Read, Fetch, Stream, More, List, Map, GetProgress
)  # fmt: skip
ANSWERS = _table(
    Opened, Joined, Claimed, Address, Status, Durability, Found, Shared, Batch, Listed, Mapped,
    Done, Failed, Progress
)  # fmt: skip

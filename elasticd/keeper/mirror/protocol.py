"""The messages of two nodes' keepers about one share, and the checks of their values. Pure.

The sender offers a share. The receiver accepts it, or says why not; then the bytes follow, and
their checksums. The sender knows the token, and yet every number is checked before anything is
allocated or named by it: a keeper with a bug must not cost another one its memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from elasticd.checkpoint.commit.upload import UploadShare
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import (
    DIMENSION_LIMIT,
    DTYPE_BYTES,
    ELEMENT_LIMIT,
    PART_LIMIT,
    PART_LIMIT_BYTES,
    PIECE_LIMIT,
    TENSOR_LIMIT,
    TEXT_LIMIT_BYTES,
    Header,
    Piece,
    Tensor,
)
from elasticd.checkpoint.format.share_layout import Layout
from elasticd.errors import Refused
from elasticd.keeper.wire.message import Saving

__all__ = [
    "ANSWERS",
    "ANSWER_LIMIT_BYTES",
    "ENDS",
    "OFFERS",
    "OFFER_LIMIT_BYTES",
    "Held",
    "NotNow",
    "Offer",
    "Sealed",
    "Wanted",
    "checked",
]

OFFER_LIMIT_BYTES = TEXT_LIMIT_BYTES
ANSWER_LIMIT_BYTES = 4096
SHARE_LIMIT_BYTES = 1 << 44
"""The limit for the share of one rank: more memory than a machine has."""
NUMBER_LIMIT = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Offer this complete share of this snapshot. It is answered by Wanted, Held or NotNow."""

    job: str
    uid: str
    """The uid of the run: all its keepers have the same."""
    snapshot: Snapshot
    share: int
    shares: int
    epoch: int
    layout: Layout
    header: Header | None
    """The header; only share 0 has one."""
    saving: Saving = Saving.USUAL

    def as_second(self) -> UploadShare:
        """Return the share as its receiver, the second holder, describes it."""
        return UploadShare(
            snapshot=self.snapshot,
            share=self.share,
            shares=self.shares,
            holder=1,
            layout=self.layout,
            header=self.header,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Ask for the bytes of all parts, in the order of the layout, and then for Sealed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """Say that all bytes were sent. The receiver answers with Held or NotNow."""

    sum: str
    """The sum of the sums of all blocks, computed when the share was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Say that the share is held here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNow:
    why: str


def checked(offer: Offer, job: str, uid: str) -> Offer:
    """Return the offer if all of it that can be checked allows to accept it.

    Raises: Refused: the message says what is wrong.
    """
    if (offer.job, offer.uid) != (job, uid):
        raise Refused("It is of another run.")
    _within("run", offer.snapshot.run, NUMBER_LIMIT)
    _within("generation", offer.snapshot.generation, NUMBER_LIMIT)
    _within("step", offer.snapshot.step, 10**15)
    _within("epoch", offer.epoch, 1 << 53)
    _within("shares", offer.shares, PART_LIMIT, least=1)
    _within("share", offer.share, offer.shares - 1)
    _check_header(offer)
    _check_layout(offer.layout, offer.header.tensors if offer.header is not None else None)
    return offer


def _check_header(offer: Offer) -> None:
    header = offer.header
    if (header is None) != (offer.share != 0):
        raise Refused("The first share has a header, and no other.")
    if header is None:
        return
    if (header.job, header.uid, header.snapshot, header.shares, header.epoch) != (
        offer.job,
        offer.uid,
        offer.snapshot,
        offer.shares,
        offer.epoch,
    ):
        raise Refused("Its header is of another snapshot.")
    _within("tensors", len(header.tensors), TENSOR_LIMIT)
    for tensor in header.tensors:
        if tensor.dtype not in DTYPE_BYTES:
            raise Refused(f"A tensor has the type {tensor.dtype[:100]!r}.")
        _check_shape(tensor.shape)


def _check_layout(layout: Layout, tensors: tuple[Tensor, ...] | None) -> None:
    _within("size", layout.size, SHARE_LIMIT_BYTES)
    _within("parts", len(layout.parts), PART_LIMIT)
    _within("pieces", len(layout.pieces), PIECE_LIMIT)
    end = 0
    for start, size in layout.parts:
        _within("start", start, layout.size, least=end)
        _within("size", size, min(PART_LIMIT_BYTES, layout.size - start))
        end = start + size
    _within("end", end, layout.size, least=layout.size)
    for piece in layout.pieces:
        _check_piece(piece, layout, tensors)


def _check_piece(piece: Piece, layout: Layout, tensors: tuple[Tensor, ...] | None) -> None:
    most = TENSOR_LIMIT if tensors is None else len(tensors)
    _within("tensor", piece.tensor, most - 1)
    _within("part", piece.part, len(layout.parts) - 1)
    _check_shape(piece.shape)
    _check_shape(piece.offsets)
    # Which type the tensor has knows the first share only; a byte is the least.
    width = 1 if tensors is None else DTYPE_BYTES[tensors[piece.tensor].dtype]
    size = layout.parts[piece.part][1]
    _within("at", piece.at, size)
    _within("length", prod(piece.shape) * width, size - piece.at)


def _check_shape(shape: tuple[int, ...]) -> None:
    _within("dimensions", len(shape), DIMENSION_LIMIT)
    for each in shape:
        _within("size", each, ELEMENT_LIMIT)
    _within("elements", prod(shape), ELEMENT_LIMIT)


def _within(name: str, value: int, most: int, least: int = 0) -> None:
    if not least <= value <= most:
        said = str(value) if abs(value) < 1 << 64 else "huge"
        raise Refused(f"{name} is {said}, which is no number from {least} to {most}.")


def _table(*kinds: type) -> Mapping[str, type]:
    return {kind.__name__: kind for kind in kinds}


OFFERS = _table(Offer)
ENDS = _table(Sealed)
ANSWERS = _table(Wanted, Held, NotNow)

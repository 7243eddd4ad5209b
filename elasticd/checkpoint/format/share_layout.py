"""Which rank writes which part of the state, and how its bytes lie in memory. Pure.

The shares have equal bytes and are cut where rows end, so each of n ranks needs an n-th of the time
to write a state. What may differ between ranks (BatchNorm's statistics, plain values) comes from
one rank as a whole, in the first share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Part, Piece, Tensor
from elasticd.checkpoint.format.piece_rows import leading_dimension

__all__ = ["PART_BYTES", "Layout", "Slab", "laid_out", "shares"]

PART_BYTES = 64 << 20
"""The size of one object, written by one request: enough parts for several connections, each worth
its round trip."""

CUT_BYTES = 1 << 20
"""Smaller tensors are not cut between shares."""

ALIGNMENT = 64
"""The alignment of every piece: any dtype can be read in place, and copies begin on a cache
line."""


@dataclass(frozen=True, slots=True)
class Slab:
    """Consecutive elements of a tensor that form a box."""

    tensor: int
    offsets: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Pieces one behind the other in memory; `parts` are (first byte, size) of each object."""

    size: int
    parts: tuple[tuple[int, int], ...]
    pieces: tuple[Piece, ...]

    def starts(self) -> list[int]:
        """The first byte of each piece in the memory."""
        return [self.parts[piece.part][0] + piece.at for piece in self.pieces]

    def named(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        assert len(parts) == len(self.parts)
        return tuple(parts)


def shares(
    tensors: Sequence[Tensor], is_replicated: Sequence[bool], count: int
) -> list[list[Slab]]:
    """Divide the state among `count` holders; `is_replicated` says whether a tensor is equal on all
    ranks.
    """
    found: list[list[Slab]] = [[] for _ in range(count)]
    own = [index for index, alike in enumerate(is_replicated) if not alike]
    for index in own:
        found[0].append(_whole(index, tensors[index]))
    total = sum(each.nbytes for each in tensors)
    own_bytes = sum(tensors[index].nbytes for index in own)
    first = max(0, total // count - own_bytes)
    rest = total - own_bytes - first
    ends = [first + rest * turn // max(1, count - 1) for turn in range(count)]
    ends[-1] = total
    at = turn = 0
    for index, alike in enumerate(is_replicated):
        if not alike:
            continue
        tensor = tensors[index]
        row_bytes = _row_bytes(tensor)
        rows = tensor.nbytes // row_bytes if row_bytes else 1
        done = 0
        while done < rows or done == 0:
            while turn < count - 1 and at >= ends[turn]:
                turn += 1
            fit = rows - done
            if turn < count - 1 and tensor.nbytes > CUT_BYTES:
                fit = min(fit, max(1, -(-(ends[turn] - at) // row_bytes)))
            found[turn].append(_rows(index, tensor, done, fit))
            at += fit * row_bytes
            done += max(1, fit)
    return found


def laid_out(tensors: Sequence[Tensor], slabs: Sequence[Slab]) -> Layout:
    """Put slabs one behind the other, in parts of about 64 MiB."""
    parts: list[tuple[int, int]] = []
    pieces: list[Piece] = []
    start = at = 0
    for slab in slabs:
        width = DTYPE_BYTES[tensors[slab.tensor].dtype]
        for box in _cut(slab, width):
            size = prod(box.shape) * width
            place = -(-at // ALIGNMENT) * ALIGNMENT
            if place and place + size > PART_BYTES:
                parts.append((start, at))
                start, place = start + -(-at // ALIGNMENT) * ALIGNMENT, 0
            pieces.append(Piece(box.tensor, box.offsets, box.shape, len(parts), place))
            at = place + size
    parts.append((start, at))
    return Layout(start + at, tuple(parts), tuple(pieces))


def _whole(index: int, tensor: Tensor) -> Slab:
    return Slab(index, (0,) * len(tensor.shape), tensor.shape)


def _row_bytes(tensor: Tensor) -> int:
    if not tensor.shape or not tensor.nbytes:
        return tensor.nbytes
    return tensor.nbytes // tensor.shape[leading_dimension(tensor.shape)]


def _rows(index: int, tensor: Tensor, first: int, count: int) -> Slab:
    if not tensor.shape or not tensor.nbytes:
        return _whole(index, tensor)
    return _box_rows(_whole(index, tensor), first, count)


def _box_rows(slab: Slab, first: int, count: int) -> Slab:
    along = leading_dimension(slab.shape)
    offsets, shape = list(slab.offsets), list(slab.shape)
    offsets[along] += first
    shape[along] = count
    return Slab(slab.tensor, tuple(offsets), tuple(shape))


def _cut(slab: Slab, width: int) -> list[Slab]:
    """Cut a slab into boxes that fit into one part."""
    size = prod(slab.shape) * width
    if size <= PART_BYTES:
        return [slab]
    rows = slab.shape[leading_dimension(slab.shape)]
    fit = max(1, PART_BYTES * rows // size)
    found: list[Slab] = []
    for first in range(0, rows, fit):
        box = _box_rows(slab, first, min(fit, rows - first))
        found += _cut(box, width) if prod(box.shape) * width > PART_BYTES else [box]
    return found

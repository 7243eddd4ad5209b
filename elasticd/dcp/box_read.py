"""Reads boxes of pieces from a bucket: only the blocks that they lie in, verified, some hundred MiB
at a time.

A box of a row-major piece spans consecutive elements from its first to its last. That span is read;
the box is a view of it with the strides of the piece.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from math import prod

import torch

from elasticd.checkpoint.commit.fetch import extents, fetch
from elasticd.checkpoint.format.manifest import BLOCK_BYTES, DTYPE_BYTES, Manifest, Piece
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.tensors.tensor_spec import dtype_of

__all__ = ["BATCH_BYTES", "PieceBox", "boxes"]

BATCH_BYTES = 256 << 20
"""The memory for one batch: sixteen of the largest requests side by side."""


@dataclass(frozen=True, slots=True)
class PieceBox:
    """A part of a piece; offsets count from the piece's first element."""

    piece: int
    offsets: tuple[int, ...]
    shape: tuple[int, ...]


def boxes(
    bucket: Bucket, manifest: Manifest, wanted: Sequence[PieceBox], pool: Executor
) -> Iterator[tuple[int, torch.Tensor]]:
    """Iterate over what is wanted, in the order of storage: its index and its values.

    The values are views of memory that is used again: copy them before the next one is taken.

    Raises: Damaged: something is not as it was written.
    """
    spans = {index: _span(manifest, box) for index, box in enumerate(wanted) if prod(box.shape)}
    for index, box in enumerate(wanted):
        if index not in spans:
            yield index, torch.empty(box.shape, dtype=_dtype(manifest, box))
    for batch in _batches(manifest, spans):
        every, starts, size = extents(manifest, [spans[index] for index in batch])
        memory = torch.empty(size, dtype=torch.uint8)
        fetch(bucket, manifest, every, memory.numpy().data, pool)
        for index, start in zip(batch, starts, strict=True):
            yield index, _view(manifest, wanted[index], spans[index], memory, start)


def _dtype(manifest: Manifest, box: PieceBox) -> torch.dtype:
    return dtype_of(manifest.header.tensors[manifest.pieces[box.piece].tensor])


def _width(manifest: Manifest, piece: Piece) -> int:
    return DTYPE_BYTES[manifest.header.tensors[piece.tensor].dtype]


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[dimension + 1 :]) for dimension in range(len(shape)))


def _span(manifest: Manifest, box: PieceBox) -> Piece:
    """Return the elements from the box's first to its last as a piece of one dimension."""
    piece = manifest.pieces[box.piece]
    assert all(
        o >= 0 and o + s <= most
        for o, s, most in zip(box.offsets, box.shape, piece.shape, strict=True)
    )
    strides = _strides(piece.shape)
    first = sum(o * stride for o, stride in zip(box.offsets, strides, strict=True))
    count = 1 + sum((s - 1) * stride for s, stride in zip(box.shape, strides, strict=True))
    at = piece.at + first * _width(manifest, piece)
    return Piece(piece.tensor, (first,), (count,), piece.part, at)


def _batches(manifest: Manifest, spans: dict[int, Piece]) -> Iterator[list[int]]:
    """Cut what is wanted, in the order of storage, into batches of so many blocks."""
    batch: list[int] = []
    blocks, newest = 0, (-1, -1)
    for index in sorted(spans, key=lambda each: (spans[each].part, spans[each].at)):
        span = spans[index]
        last = (span.at + prod(span.shape) * _width(manifest, span) - 1) // BLOCK_BYTES
        first = max(span.at // BLOCK_BYTES, newest[1] + 1 if newest[0] == span.part else 0)
        if batch and (blocks + last + 1 - first) * BLOCK_BYTES > BATCH_BYTES:
            yield batch
            batch, blocks, first = [], 0, span.at // BLOCK_BYTES
        batch.append(index)
        blocks += max(0, last + 1 - first)
        newest = (span.part, max(last, newest[1]) if newest[0] == span.part else last)
    if batch:
        yield batch


def _view(
    manifest: Manifest, box: PieceBox, span: Piece, memory: torch.Tensor, start: int
) -> torch.Tensor:
    width = _width(manifest, span)
    raw = memory[start : start + prod(span.shape) * width]
    if start % width:
        raw = raw.clone()  # Ours are aligned; the format does not ask for it.
    strides = _strides(manifest.pieces[box.piece].shape)
    return raw.view(_dtype(manifest, box)).as_strided(box.shape, strides)

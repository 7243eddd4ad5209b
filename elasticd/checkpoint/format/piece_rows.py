"""Rows of a piece, for a reader that needs only a part of the piece. Pure.

Elements stand in row-major order, so consecutive rows of the first dimension that has more than one
row are consecutive bytes, and are a piece themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Manifest, Piece

__all__ = ["PieceRows", "all_rows", "leading_dimension", "selected"]


@dataclass(frozen=True, slots=True)
class PieceRows:
    """Consecutive rows of a piece of a manifest, counted in its leading dimension."""

    piece: int
    """The index of the piece in the manifest."""
    first: int
    count: int


def leading_dimension(shape: tuple[int, ...]) -> int:
    """Return the first dimension that has more than one row, or the last; 0 if there is none."""
    for dimension, size in enumerate(shape):
        if size != 1:
            return dimension
    return max(0, len(shape) - 1)


def all_rows(index: int, piece: Piece) -> PieceRows:
    """Return all rows of a piece, which has this index in its manifest."""
    return PieceRows(index, 0, _row_count(piece))


def selected(manifest: Manifest, wanted: Iterable[PieceRows]) -> list[Piece]:
    """Return these rows as pieces.

    Raises: IndexError: there is no such piece. ValueError: the piece has no such rows.
    """
    return [_rows_of(manifest, each) for each in wanted]


def _row_count(piece: Piece) -> int:
    return piece.shape[leading_dimension(piece.shape)] if piece.shape else 1


def _rows_of(manifest: Manifest, wanted: PieceRows) -> Piece:
    piece = manifest.pieces[wanted.piece]
    along = leading_dimension(piece.shape)
    rows = _row_count(piece)
    if not 0 <= wanted.first <= wanted.first + wanted.count <= rows:
        raise ValueError(
            f"Piece {wanted.piece} has {rows} rows, and {wanted.count} from {wanted.first} are "
            "wanted."
        )
    if wanted.count == rows:
        return piece
    offsets, shape = list(piece.offsets), list(piece.shape)
    offsets[along] += wanted.first
    shape[along] = wanted.count
    row_bytes = (
        prod(piece.shape[along + 1 :]) * DTYPE_BYTES[manifest.header.tensors[piece.tensor].dtype]
    )
    at = piece.at + wanted.first * row_bytes
    return Piece(piece.tensor, tuple(offsets), tuple(shape), piece.part, at)

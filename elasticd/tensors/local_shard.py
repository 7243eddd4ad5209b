"""Which part of a tensor is in this process: all of an ordinary one, a box of a DTensor."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from elasticd.checkpoint.format.manifest import Piece
from elasticd.checkpoint.format.piece_rows import PieceRows, leading_dimension
from elasticd.errors import NotSupported

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

__all__ = [
    "LocalShard",
    "common",
    "has_replicas",
    "is_distributed",
    "local_part",
    "local_rows",
    "memories_of",
    "memory_of",
    "within",
]


class LocalShard(NamedTuple):
    tensor: torch.Tensor
    """The elements that are here, shape [*box]; it shares the memory."""
    origin: tuple[int, ...]
    """The offsets in elements of the first of them in the whole tensor."""
    is_plain_tensor: bool
    is_first: bool
    """True if no rank before this one holds the same elements."""

    def rows_of(self, index: int, piece: Piece) -> PieceRows | None:
        """Return the rows of a piece in which an element is here; None if there is none.

        `index` is the piece's index in its manifest.
        """
        if not self.tensor.numel() or 0 in piece.shape:
            return None
        rows = PieceRows(index, 0, 1)
        along = leading_dimension(piece.shape)
        sides = zip(self.origin, self.tensor.shape, piece.offsets, piece.shape, strict=True)
        for dimension, (origin, here, first, count) in enumerate(sides):
            low, high = max(origin, first), min(origin + here, first + count)
            if high <= low:
                return None
            if dimension == along:
                rows = PieceRows(index, low - first, high - low)
        return rows


def local_rows(pieces: Sequence[Piece], shards: Sequence[LocalShard | None]) -> list[PieceRows]:
    """Return, of each piece of a manifest, the rows in which an element is here.

    `shards` are the tensors of the manifest in their order; None: nothing of this one is wanted.
    """
    return [
        rows
        for index, piece in enumerate(pieces)
        if (shard := shards[piece.tensor]) is not None
        and (rows := shard.rows_of(index, piece)) is not None
    ]


def local_part(tensor: torch.Tensor) -> LocalShard:
    """Return the part of a tensor that this rank holds.

    Raises: NotSupported: the tensor is sharded so that the part is no box.
    """
    if not is_distributed(tensor):
        return LocalShard(tensor.detach(), (0,) * tensor.dim(), is_plain_tensor=True, is_first=True)
    from torch.distributed.tensor import DTensor, Replicate, Shard

    assert isinstance(tensor, DTensor)
    for placement in tensor.placements:
        # Exactly these: a strided shard is a Shard too, and no box of consecutive rows.
        if type(placement) not in (Replicate, Shard):
            raise NotSupported(
                f"A tensor is placed as {placement}, which is no box of the whole: save it with "
                "torch.distributed.checkpoint and elasticd.checkpoint.Writer."
            )
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None:  # Other ranks have all of it.
        zeros = (0,) * tensor.dim()
        nothing = tensor.to_local().detach().new_empty(zeros or (0,))
        return LocalShard(nothing, zeros, is_plain_tensor=False, is_first=False)
    origin = _origin(tensor, coordinate)
    is_first = all(
        place == 0 or not isinstance(placement, Replicate)
        for place, placement in zip(coordinate, tensor.placements, strict=True)
    )
    return LocalShard(tensor.to_local().detach(), origin, is_plain_tensor=False, is_first=is_first)


def _origin(tensor: "DTensor", coordinate: Sequence[int]) -> tuple[int, ...]:
    """Return where this rank's box of a tensor begins; that of an empty one is the tensor's end.

    Torch's own function for it builds a list of the numbers of all rows of the box: eight bytes for
    each, which is twice the state where that is one long row of numbers.
    """
    first, left = [0] * tensor.dim(), list(tensor.shape)
    dimensions = zip(tensor.placements, tensor.device_mesh.shape, coordinate, strict=True)
    for placement, ranks, place in dimensions:
        if placement.is_replicate():
            continue
        dimension: int = placement.dim  # type: ignore[attr-defined]
        size = -(-left[dimension] // ranks)
        before = min(size * place, left[dimension])
        first[dimension] += before
        left[dimension] = min(size, left[dimension] - before)
        if not left[dimension]:
            first[dimension] = tensor.shape[dimension]
    return tuple(first)


def has_replicas(tensor: torch.Tensor) -> bool:
    """Return whether another rank has every element that this one has."""
    if not is_distributed(tensor):
        return True
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    sizes = zip(tensor.device_mesh.shape, tensor.placements, strict=True)
    return any(size > 1 and placement.is_replicate() for size, placement in sizes)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the ordinary tensor that holds what is here of this one; always the same object."""
    if not is_distributed(tensor):
        return tensor
    held: torch.Tensor = tensor._local_tensor  # type: ignore[attr-defined]
    return held


def memories_of(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return `memory_of` each; of thousands at each step that takes a quarter of the time."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:
        return list(tensors)
    kind = module.DTensor
    return [each._local_tensor if isinstance(each, kind) else each for each in tensors]


def is_distributed(tensor: torch.Tensor) -> bool:
    """Return whether it is a DTensor."""
    # Whoever has a DTensor has imported its module, which takes half a second.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def within(part: LocalShard, piece: Piece) -> torch.Tensor:
    """Return the elements of a piece, all of which are in this part, as a view."""
    tensor = part.tensor
    rows = zip(piece.offsets, part.origin, piece.shape, strict=True)
    for dimension, (first, origin, size) in enumerate(rows):
        if size != tensor.shape[dimension]:
            tensor = tensor.narrow(dimension, first - origin, size)
    return tensor


def common(
    part: LocalShard, offsets: tuple[int, ...], values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the elements that a box of the whole and this part have in common; None if there are
    none.

    `values` are those of the box that begins at `offsets`, in elements of the whole. Returns views
    of one shape: (here, of the values).
    """
    here, given = part.tensor, values
    if not here.numel():
        return None
    rows = zip(part.origin, offsets, strict=True)
    for dimension, (origin, first) in enumerate(rows):
        low = max(origin, first)
        high = min(origin + here.shape[dimension], first + given.shape[dimension])
        if high <= low:
            return None
        if high - low < here.shape[dimension]:  # Most have all in common, and a view takes time.
            here = here.narrow(dimension, low - origin, high - low)
        if high - low < given.shape[dimension]:
            given = given.narrow(dimension, low - first, high - low)
    return here, given

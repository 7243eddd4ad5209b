"""Copies bytes to their places in the tensors of a state.

It copies from mapped memory. Rejected: to read from the memory's file straight into the tensors,
which saves page faults; the kernel's copy, page by page, is slower than what they cost.
"""

from collections.abc import Sequence

import torch

from elasticd.checkpoint.format.manifest import Piece, Tensor
from elasticd.tensors.local_shard import common, local_part
from elasticd.tensors.memory_copy import MemoryCopy, Pair
from elasticd.tensors.tensor_spec import views

__all__ = ["PieceDestinations"]


class PieceDestinations:
    """The destinations of a checkpoint's tensors; a DTensor takes what belongs to this rank."""

    def __init__(self, tensors: Sequence[Tensor], places: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self.here = [local_part(place) for place in places]
        """What this rank holds of each."""

    def put(self, memory: memoryview, pieces: Sequence[Piece], starts: Sequence[int]) -> None:
        """Copy pieces that begin at these bytes of memory."""
        parts = views(memory, self._tensors, pieces, starts)
        pairs: list[Pair] = []
        for piece, part in zip(pieces, parts, strict=True):
            pair = common(self.here[piece.tensor], piece.offsets, part)
            if pair is not None:
                to, source = pair
                pairs.append((source, to))
        MemoryCopy(pairs).run()

"""Copies bytes to their places in the tensors of a state.

The source is mapped memory. Rejected: to read from the memory's file straight into the tensors.
This saves page faults, but the kernel's copy, page by page, loses more time than page faults cost.
"""

from collections.abc import Sequence
from typing import TypeGuard

import torch

from elasticd.checkpoint.format.box_cover import Box, uncovered
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import Piece, Tensor
from elasticd.tensors.local_shard import common, local_part, memory_of
from elasticd.tensors.memory_copy import MemoryCopy, Pair
from elasticd.tensors.tensor_spec import views

__all__ = ["PieceDestinations", "is_place"]


class PieceDestinations:
    """The destinations of a checkpoint's tensors; a DTensor takes the elements of this rank."""

    def __init__(self, tensors: Sequence[Tensor], places: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self.here = [local_part(place) for place in places]
        """What this rank holds of each."""
        self._landed: list[list[Box]] = [[] for _ in places]
        """Which of its elements have come, as boxes of it."""

    def put(self, memory: memoryview, pieces: Sequence[Piece], starts: Sequence[int]) -> None:
        """Copy pieces that begin at these bytes of memory."""
        parts = views(memory, self._tensors, pieces, starts)
        pairs: list[Pair] = []
        for piece, part in zip(pieces, parts, strict=True):
            pair = common(self.here[piece.tensor], piece.offsets, part)
            if pair is not None:
                to, source = pair
                pairs.append((source, to))
                sides = zip(self.here[piece.tensor].origin, piece.offsets, strict=True)
                first = tuple(max(0, at - origin) for origin, at in sides)
                self._landed[piece.tensor].append((first, tuple(to.shape)))
        MemoryCopy(pairs).run()

    def check_complete(self) -> None:
        """Raise Damaged unless every element has arrived exactly once.

        Each rank had cut its shares in the memory of the nodes by itself: if two ranks had cut
        differently, an element that neither has would silently keep its old value.
        """
        for tensor, part, landed in zip(self._tensors, self.here, self._landed, strict=True):
            if part.tensor.numel() and (why := uncovered(tuple(part.tensor.shape), landed)):
                raise Damaged(f"{tensor.name} is not whole: {why}.")


def is_place(tensor: torch.Tensor | None) -> TypeGuard[torch.Tensor]:
    """Return whether the tensor can be written to: in an expanded tensor two elements are one."""
    if tensor is None:
        return False
    if memory_of(tensor) is tensor and tensor.is_contiguous():
        return True  # As nearly all are: a look at each dimension takes time.
    here = local_part(tensor).tensor
    rows = zip(here.stride(), here.shape, strict=True)
    return not any(stride == 0 and size > 1 for stride, size in rows)

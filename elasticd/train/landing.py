"""Brings bytes to their places in the tensors of a state.

Where this process has them in a file of memory and a piece is contiguous in the tensor, the kernel
copies it there: no page of the file has to be entered into this process's tables, which would take
a third as long as the copy.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from elasticd.checkpoint.manifest import Piece, Tensor
from elasticd.errors import Unavailable
from elasticd.train.content import views
from elasticd.train.shard import common, local_part

__all__ = ["Landing"]

CHUNK_BYTES = 8 << 20
"""Of one call: so that several threads share the work evenly."""


class Landing:
    """Where the tensors of a checkpoint go; a DTensor takes what belongs to this rank."""

    def __init__(self, tensors: Sequence[Tensor], places: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._here = [local_part(place) for place in places]

    def put(self, memory: memoryview, pieces: Sequence[Piece], starts: Sequence[int]) -> None:
        """Copy pieces that begin at these bytes of memory."""
        with torch.no_grad():
            for place, part, _ in self._pairs(memory, pieces, starts):
                place.copy_(part)

    def read(
        self, file: int, memory: memoryview, pieces: Sequence[Piece], starts: Sequence[int]
    ) -> None:
        """The same, out of the file that `memory` is a mapping of; negative: there is none.

        Raises:
            Unavailable: the file ends too soon.
        """
        chunks: list[tuple[memoryview, int]] = []
        for place, part, start in self._pairs(memory, pieces, starts):
            whole = _bytes_of(place) if file >= 0 and part.is_contiguous() else None
            if whole is None:
                with torch.no_grad():
                    place.copy_(part)
                continue
            chunks += (
                (whole[at : at + CHUNK_BYTES], start + at)
                for at in range(0, len(whole), CHUNK_BYTES)
            )
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for _ in pool.map(lambda group: _read_all(file, group), _grouped(chunks)):
                pass

    def _pairs(
        self, memory: memoryview, pieces: Sequence[Piece], starts: Sequence[int]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        """(to, from, where the latter begins) of what this rank wants."""
        parts = views(memory, self._tensors, pieces, starts)
        for piece, part, start in zip(pieces, parts, starts, strict=True):
            pair = common(self._here[piece.tensor], piece.offsets, part)
            if pair is not None:
                ahead = int(pair[1].storage_offset()) * part.element_size()
                yield *pair, start + ahead


def _bytes_of(place: torch.Tensor) -> memoryview | None:
    """The memory of a tensor; None: its elements are not side by side in this host's."""
    if place.device.type != "cpu" or not place.is_contiguous():
        return None
    return memoryview(place.detach().reshape(-1).view(torch.uint8).numpy().data)


def _grouped(chunks: Sequence[tuple[memoryview, int]]) -> Iterator[list[tuple[memoryview, int]]]:
    """As many as make up a chunk: to hand over a task costs more than to read a small tensor."""
    group: list[tuple[memoryview, int]] = []
    held = 0
    for chunk in chunks:
        group.append(chunk)
        held += len(chunk[0])
        if held >= CHUNK_BYTES:
            yield group
            group, held = [], 0
    yield group


def _read_all(file: int, chunks: Sequence[tuple[memoryview, int]]) -> None:
    for chunk, at in chunks:
        place, start = chunk, at
        while place:
            count = os.preadv(file, [place], start)
            if not count:
                raise Unavailable("What was restored ends too soon: its keeper has let go of it.")
            place, start = place[count:], start + count

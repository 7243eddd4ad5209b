"""This rank's pieces of a checkpoint, as its keeper reads them: batch after batch."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from elasticd.checkpoint.fetch import extents
from elasticd.checkpoint.keeper import message as ms
from elasticd.checkpoint.keeper.memory import Memory
from elasticd.checkpoint.manifest import Manifest, Piece
from elasticd.train.asking import Keeping

__all__ = ["Brought", "inflow"]


class Brought(NamedTuple):
    """Bytes that one rank has for all."""

    memory: memoryview
    pieces: Sequence[Piece]
    starts: Sequence[int]
    keep: object = None
    """Holds the memory."""


def inflow(
    client: Keeping, number: int, manifest: Manifest, pieces: Sequence[int]
) -> Iterator[Brought]:
    """Begin to read, and return what yields the batches: each good until the next is asked for.

    Raises:
        ElasticdError: as the keeper says; here if it is about the first batch, else in the middle.
    """
    question = ms.Stream(number=number, pieces=tuple(pieces))
    first = client.ask_memory(question, ms.Batch)
    return _batches(client, manifest, pieces, first)


def _batches(
    client: Keeping,
    manifest: Manifest,
    pieces: Sequence[int],
    answer: tuple[ms.Batch, Memory | None],
) -> Iterator[Brought]:
    slots: dict[int, Memory] = {}
    at = 0
    while True:
        batch, memory = answer
        if not batch.count:
            return
        if memory is not None:
            slots[batch.slot] = memory
        indices = pieces[at : at + batch.count]
        at += batch.count
        _, starts, size = extents(manifest, indices)
        held = slots[batch.slot]
        wanted = [manifest.pieces[index] for index in indices]
        yield Brought(held.view[:size], wanted, starts, held)  # Its slot may be larger.
        answer = client.ask_memory(ms.More(), ms.Batch)

"""Reads a large range of a checkpoint through a small memory, batch after batch, for one worker.

While the worker copies one batch to its place, the next is read into another slot. So a restore
needs little more memory than the state itself, and the kernel clears its pages once and not for
every byte, which would take longer than reading from a fast disk.
"""

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from elasticd.checkpoint.commit.fetch import Fetching, extents, size_of
from elasticd.checkpoint.commit.read_lease import reading
from elasticd.checkpoint.format.manifest import Manifest, Piece
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.keeper.memory.memfd import SharedMemory

__all__ = ["BATCH_BYTES", "SLOTS", "PieceBatch", "batches", "stream"]

BATCH_BYTES = 128 << 20
"""The size of a batch; a single piece may be larger. It is enough requests at once to keep a
distant storage busy."""
SLOTS = 2
"""One slot that is read into, one that the worker reads from."""


class PieceBatch(NamedTuple):
    """Pieces that are complete and verified in memory, until the next batch is asked for."""

    slot: int
    memory: SharedMemory
    is_first: bool
    """True for the first batch of this slot, when the worker does not have its memory yet."""
    pieces: tuple[Piece, ...]


def batches(manifest: Manifest, pieces: Sequence[Piece], limit: int) -> list[tuple[Piece, ...]]:
    """Cut pieces, in their order, into batches of at most `limit` bytes, or of one piece. Pure."""
    found: list[tuple[Piece, ...]] = []
    batch: list[Piece] = []
    held = 0
    for piece in pieces:
        size = size_of(manifest, piece)
        if batch and held + size > limit:
            found.append(tuple(batch))
            batch, held = [], 0
        batch.append(piece)
        held += size
    return [*found, tuple(batch)] if batch else found


def stream(
    bucket: Bucket, number: int, manifest: Manifest, pieces: Sequence[Piece], pool: Executor
) -> Generator[PieceBatch]:
    """Yield all pieces, in their order; taking the next batch gives the batch before back.

    Raises: Damaged: something is gone or not as it was written. EnvironmentProblem: there is no
    memory.
    """
    every = batches(manifest, pieces, BATCH_BYTES)
    plans = [extents(manifest, batch) for batch in every]
    ring = [
        SharedMemory.new(max(size for _, _, size in plans[slot::SLOTS]), touch=False)
        for slot in range(min(SLOTS, len(plans)))
    ]
    under_way: deque[Fetching] = deque()

    def begin(index: int) -> None:
        if index < len(plans):
            memory = ring[index % SLOTS]
            under_way.append(Fetching(bucket, manifest, plans[index][0], memory.view, pool))

    with reading(bucket, number):
        try:
            for index in range(SLOTS - 1):
                begin(index)
            for index, batch in enumerate(every):
                begin(index + SLOTS - 1)
                under_way[0].result()
                under_way.popleft()
                slot = index % SLOTS
                yield PieceBatch(slot, ring[slot], index < SLOTS, batch)
        finally:
            for each in under_way:
                each.end()

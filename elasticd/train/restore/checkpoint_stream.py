"""The bytes a keeper gives its worker: a share in memory, or stored pieces, batch after batch."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from elasticd.checkpoint.commit.fetch import extents
from elasticd.checkpoint.format.checksum import block_sums
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import Manifest, Piece
from elasticd.checkpoint.format.piece_rows import PieceRows, selected
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire import message as ms
from elasticd.train.restore.keeper_port import KeeperMemoryPort

__all__ = ["StreamedPieces", "inflow", "mapped"]

THREADS = 4
"""How many threads compare checksums; a node has as many ranks that do so as it has devices."""


class StreamedPieces(NamedTuple):
    """The bytes that one rank has for all ranks."""

    memory: memoryview
    pieces: Sequence[Piece]
    starts: Sequence[int]
    keep: object = None
    """It holds the memory."""
    check: Callable[[], None] = lambda: None
    """It raises Damaged if the bytes are not those that were saved; call it before they count."""


def mapped(client: KeeperMemoryPort, held: ms.Held) -> tuple[ms.Mapped, StreamedPieces]:
    """Map a share that the keeper has in memory.

    Threads compare the checksums while the bytes are copied, so that the checks cost no time of
    their own where a core is free; `StreamedPieces.check` waits for the threads.

    Raises:
        ElasticdError: as the keeper says.
    """
    mapping, memory = client.ask_memory(ms.Map(held=held), ms.Mapped)
    assert memory is not None
    view, layout = memory.view, mapping.layout
    pool = ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1))
    found = [pool.submit(block_sums, view[part[0] : sum(part)]) for part in layout.parts]
    pool.shutdown(wait=False)

    def check() -> None:
        if tuple(each.result() for each in found) != mapping.sums:
            raise Damaged(
                f"Share {held.share} of {held.snapshot} in the memory of this node is not as it "
                "was saved: a checksum differs."
            )

    return mapping, StreamedPieces(view, layout.pieces, layout.starts(), memory, check)


def inflow(
    client: KeeperMemoryPort, number: int, manifest: Manifest, wanted: Sequence[PieceRows]
) -> Iterator[StreamedPieces]:
    """Begin to read, and return an iterator over batches; each is valid until the next is
    requested.

    Raises:
        ElasticdError: as the keeper says; here for an error of the first batch, for a later one in
            the iterator.
    """
    question = ms.Stream(number=number, pieces=tuple(wanted))
    first = client.ask_memory(question, ms.Batch)
    return _batches(client, manifest, selected(manifest, wanted), first)


def _batches(
    client: KeeperMemoryPort,
    manifest: Manifest,
    pieces: Sequence[Piece],
    answer: tuple[ms.Batch, SharedMemory | None],
) -> Iterator[StreamedPieces]:
    slots: dict[int, SharedMemory] = {}
    at = 0
    while True:
        batch, memory = answer
        if not batch.count:
            return
        if memory is not None:
            slots[batch.slot] = memory
        come = pieces[at : at + batch.count]
        at += batch.count
        _, starts, size = extents(manifest, come)
        held = slots[batch.slot]
        yield StreamedPieces(held.view[:size], come, starts, held)  # Its slot may be larger.
        answer = client.ask_memory(ms.More(), ms.Batch)

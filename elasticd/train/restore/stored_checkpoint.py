"""Which part of a stored checkpoint each rank reads, when all restore it together.

Of tensors that every rank holds whole, each rank reads an equal share for all ranks. Of sharded
tensors each rank reads the rows of which it has an element, and nobody sends it anything. If two
ranks need the same bytes (copies, or a block in which both have rows), both read them: over a
network that costs less than to send them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from elasticd.checkpoint.commit.fetch import size_of
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.format.piece_rows import PieceRows, all_rows
from elasticd.keeper.wire import message as ms
from elasticd.tensors.local_shard import LocalShard, local_rows
from elasticd.train.restore.checkpoint_stream import inflow
from elasticd.train.restore.keeper_port import KeeperMemoryPort
from elasticd.train.shards.share_broadcast import BroadcastGroup, Load

__all__ = ["StoredCheckpoint", "divided"]


class StoredCheckpoint(NamedTuple):
    """A checkpoint in storage."""

    number: int
    manifest: Manifest

    @classmethod
    def opened(cls, client: KeeperMemoryPort, number: int) -> Self:
        """Read the manifest.

        Raises: Damaged: the manifest is not as it was written. ElasticdError: what the keeper
            answers.
        """
        _, memory = client.ask_memory(ms.Read(number=number), ms.Shared)
        assert memory is not None
        return cls(number, Manifest.from_json(bytes(memory.view)))

    def divided(
        self, group: BroadcastGroup, here: Sequence[LocalShard], is_sharded: Sequence[bool]
    ) -> tuple[list[PieceRows], list[PieceRows]]:
        """Return the rows that this rank reads for all ranks, and those it reads for itself."""
        pieces = self.manifest.pieces
        alike = [index for index, piece in enumerate(pieces) if not is_sharded[piece.tensor]]
        only = replace(self.manifest, pieces=tuple(pieces[index] for index in alike))
        first, count = divided(only, group.size)[group.rank]
        whole = [all_rows(index, pieces[index]) for index in alike[first : first + count]]
        spread = [shard if own else None for shard, own in zip(here, is_sharded, strict=True)]
        return whole, local_rows(pieces, spread)

    def read(self, client: KeeperMemoryPort, wanted: Sequence[PieceRows]) -> Iterator[Load]:
        """Make the keeper read and verify the wanted rows, batch after batch."""
        if wanted:
            for brought in inflow(client, self.number, self.manifest, wanted):
                yield brought[:3]


def divided(manifest: Manifest, count: int) -> list[tuple[int, int]]:
    """Divide the pieces among ranks: (first, number) of each, about equally many bytes. Pure."""
    total = sum(size_of(manifest, piece) for piece in manifest.pieces)
    found = []
    first = at = 0
    for rank in range(count):
        end = first
        while end < len(manifest.pieces) and (rank == count - 1 or at < total * (rank + 1) / count):
            at += size_of(manifest, manifest.pieces[end])
            end += 1
        found.append((first, end - first))
        first = end
    return found

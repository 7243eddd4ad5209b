"""One share of one snapshot in the memory of a keeper, however it came there."""

from dataclasses import dataclass

from elasticd.checkpoint.keeper.memory import Memory
from elasticd.checkpoint.keeper.message import Held
from elasticd.checkpoint.manifest import Header
from elasticd.checkpoint.upload import Share

__all__ = ["BUFFERS", "Record", "held_of"]

BUFFERS = 2
"""Of each share: one that is whole, one that is being written."""


@dataclass(slots=True, eq=False, kw_only=True)
class Record:
    """It is whole."""

    share: Share
    memory: Memory
    epoch: int
    is_wanted: bool = True
    """False: its memory is going to be overwritten."""
    is_uploaded: bool = False
    uploaded_bytes: int = 0
    """Of the parts that are in the bucket."""

    @property
    def header(self) -> Header | None:
        return self.share.header


def held_of(record: Record) -> Held:
    """What a worker is told of it."""
    share = record.share
    return Held(
        snapshot=share.snapshot,
        share=share.share,
        shares=share.shares,
        holder=share.holder,
        nbytes=record.memory.size,
    )

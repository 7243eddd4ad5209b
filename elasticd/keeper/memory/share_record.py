"""One share of one snapshot in the memory of a keeper, from wherever it came.

Its checksums are computed once, when it is complete. The checksums go with the share wherever it
goes: into the objects in storage, to the next node's keeper, and to a worker that restores from
this memory.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from elasticd.checkpoint.commit.upload import UploadShare
from elasticd.checkpoint.format.checksum import block_sums
from elasticd.checkpoint.format.manifest import Header
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.wire.message import Held, Saving

__all__ = ["BUFFERS", "ShareRecord", "held_of"]

BUFFERS = 2
"""The buffers of each share: one that is complete, one that is being written."""


@dataclass(slots=True, eq=False, kw_only=True)
class ShareRecord:
    """A complete share in memory, with its checksums."""

    share: UploadShare
    memory: SharedMemory
    epoch: int
    is_wanted: bool = True
    """False if its memory is going to be overwritten."""
    saving: Saving = Saving.USUAL
    is_on_one_node: bool = False
    """True if all shares of its snapshot are handed to this keeper, or to none."""
    is_finished: bool = False
    """True if its snapshot is durable, or was given up."""
    is_uploaded: bool = False
    uploaded_bytes: int = 0
    """The bytes of its parts that are in the bucket."""
    _sums: list[Future[tuple[str, ...]]] = field(default_factory=list)
    """The sums of the blocks of each part."""

    def seal(self, pool: Executor) -> None:
        """Begin to compute the checksums of the bytes that are in memory now."""
        view = self.memory.view
        parts = self.share.layout.parts
        self._sums = [pool.submit(block_sums, view[at : at + size]) for at, size in parts]

    def seal_with(self, sums: Sequence[tuple[str, ...]]) -> None:
        """Use these checksums: they came from the share's sender, and fit the received bytes."""
        self._sums = [Future() for _ in sums]
        for future, found in zip(self._sums, sums, strict=True):
            future.set_result(found)

    def sums_of(self, part: int) -> tuple[str, ...]:
        """Return the sums of the blocks of one part; waits until they are computed."""
        return self._sums[part].result()

    def sums(self) -> tuple[tuple[str, ...], ...]:
        """Return the sums of all parts; waits until they are computed."""
        return tuple(each.result() for each in self._sums)

    @property
    def is_pinned(self) -> bool:
        """Return whether its memory is still needed for an upload beside which others are taken."""
        return self.saving is Saving.PINNED and self.is_wanted and not self.is_finished

    @property
    def is_uploading(self) -> bool:
        """Return whether such an upload, by this node, has not read all of the share yet."""
        return self.is_pinned and self.share.holder == 0 and not self.is_uploaded

    @property
    def header(self) -> Header | None:
        return self.share.header


def held_of(record: ShareRecord) -> Held:
    """Return the description of a record that a worker gets."""
    share = record.share
    return Held(
        snapshot=share.snapshot,
        share=share.share,
        shares=share.shares,
        holder=share.holder,
        nbytes=record.memory.size,
        is_saved=record.saving is not Saving.NONE,
    )

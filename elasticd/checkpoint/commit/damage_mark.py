"""What a keeper writes beside the parts of a checkpoint: this block of a part is damaged.

In restart mode rank 0 chooses the checkpoint before the other ranks read, and of a sharded state it
reads its own part only. A rank that finds its part damaged fails, and its keeper marks the block.
Rank 0 of the next start reads that block itself. So a mark decides nothing: it only says where to
look.
"""

from dataclasses import asdict, dataclass
from typing import Self

from elasticd.checkpoint.commit.fetch import read_block
from elasticd.checkpoint.format import json_read
from elasticd.checkpoint.format.json_read import Damaged, DamagedBlock, retry_damaged, with_checksum
from elasticd.checkpoint.format.layout import Snapshot, damage_name
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing, ReadableBucket

__all__ = ["DamageMark", "check_marked_block", "mark_damage"]

FORMAT = 1
MARK_LIMIT_BYTES = 64 << 10
BLOCK_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageMark:
    """Somebody found this block of a snapshot's part damaged."""

    snapshot: Snapshot
    block: DamagedBlock

    def to_json(self) -> bytes:
        return with_checksum(
            {
                "format": FORMAT,
                **asdict(self.snapshot),
                "part": self.block.part,
                "block": self.block.number,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, snapshot: Snapshot) -> Self:
        """Read what was written in the folder of this snapshot.

        Raises: Damaged: the text is something else.
        """
        fields = json_read.document(data, MARK_LIMIT_BYTES, FORMAT)
        if Snapshot.from_plain(fields) != snapshot:
            raise Damaged("It is the mark of another snapshot.")
        number = json_read.integer(fields, "block", BLOCK_LIMIT)
        return cls(snapshot=snapshot, block=DamagedBlock(json_read.text(fields, "part"), number))


def mark_damage(bucket: Bucket, snapshot: Snapshot, block: DamagedBlock) -> None:
    """Write the mark over an earlier one: what that one named may have been mended since."""
    mark = DamageMark(snapshot=snapshot, block=block)
    bucket.replace(damage_name(snapshot), mark.to_json())


def check_marked_block(bucket: ReadableBucket, manifest: Manifest) -> None:
    """Read the block that a mark names, if there is a mark.

    Raises: Damaged: the block is gone, too short, or wrong.
    """
    snapshot = manifest.header.snapshot
    name = damage_name(snapshot)
    try:
        mark = retry_damaged(
            lambda: DamageMark.from_json(bucket.read(name, MARK_LIMIT_BYTES), snapshot)
        )
    except (ObjectMissing, Damaged):
        return
    for part in manifest.parts:
        if part.name == mark.block.part and mark.block.number < len(part.sums):
            read_block(bucket, snapshot.folder, part, mark.block.number)

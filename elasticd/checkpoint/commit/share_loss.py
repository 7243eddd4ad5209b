"""What a keeper writes beside the shares of a snapshot: this share never comes.

A worker that was killed in the middle of a save leaves the other nodes' shares without its own. Its
keeper knows that the share was never handed over, and whoever restores must not wait for it. A loss
excludes nothing: what counts is the log's, so a share that appears nevertheless makes no second
history. It only says that a wait is of no use.
"""

from dataclasses import asdict, dataclass
from typing import Self

from elasticd.checkpoint.commit.committer import fragment_of
from elasticd.checkpoint.format import json_read
from elasticd.checkpoint.format.json_read import Damaged, retry_damaged, with_checksum
from elasticd.checkpoint.format.layout import Snapshot, loss_name
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing, ReadableBucket

__all__ = ["ShareLoss", "is_lost", "write_loss"]

FORMAT = 1
LOSS_LIMIT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLoss:
    """One holder of a share never got it."""

    snapshot: Snapshot
    share: int
    holder: int
    uid: str
    """The run that took the snapshot."""
    is_only_copy: bool
    """True if no rank of another node was to copy the share."""

    def to_json(self) -> bytes:
        return with_checksum(
            {
                "format": FORMAT,
                **asdict(self.snapshot),
                "share": self.share,
                "holder": self.holder,
                "uid": self.uid,
                "is_only_copy": self.is_only_copy,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, snapshot: Snapshot, share: int, holder: int) -> Self:
        """Read what was written under the name of this holder's share.

        Raises: Damaged: the text is something else.
        """
        fields = json_read.document(data, LOSS_LIMIT_BYTES, FORMAT)
        held = (fields.get("share"), fields.get("holder"))
        if Snapshot.from_plain(fields) != snapshot or held != (share, holder):
            raise Damaged("It is the loss of another share.")
        return cls(
            snapshot=snapshot,
            share=share,
            holder=holder,
            uid=json_read.text(fields, "uid"),
            is_only_copy=fields.get("is_only_copy") is True,
        )


def write_loss(bucket: Bucket, loss: ShareLoss) -> None:
    """Write a loss; one that was written before stays."""
    bucket.create(loss_name(loss.snapshot, loss.share, loss.holder), loss.to_json())


def is_lost(bucket: ReadableBucket, snapshot: Snapshot, share: int, uid: str) -> bool:
    """Return whether no holder of this run's share ever uploads it.

    The fragment is looked for last: a keeper that has ended since may have left one.
    """
    loss = _loss_of(bucket, snapshot, share, 0, uid)
    if loss is None:
        return False
    if not loss.is_only_copy and _loss_of(bucket, snapshot, share, 1, uid) is None:
        return False
    return fragment_of(bucket, snapshot, share, uid) is None


def _loss_of(
    bucket: ReadableBucket, snapshot: Snapshot, share: int, holder: int, uid: str
) -> ShareLoss | None:
    name = loss_name(snapshot, share, holder)
    try:
        found = retry_damaged(
            lambda: ShareLoss.from_json(
                bucket.read(name, LOSS_LIMIT_BYTES), snapshot, share, holder
            )
        )
    except (ObjectMissing, Damaged):
        return None
    return found if found.uid == uid else None

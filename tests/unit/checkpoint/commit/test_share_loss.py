"""What a keeper writes of a share that it never got, and when that means that the share is lost."""

from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.share_loss import ShareLoss, is_lost, write_loss
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot, fragment_name, loss_name
from elasticd.checkpoint.format.manifest import Fragment
from elasticd.checkpoint.storage.folder import FolderBucket

MADE = Snapshot(run=1, generation=2, step=30)
ALONE = ShareLoss(snapshot=MADE, share=1, holder=0, uid="uid", is_only_copy=True)


@pytest.fixture
def bucket(tmp_path: Path) -> FolderBucket:
    return FolderBucket(str(tmp_path))


def test_only_copy_that_was_never_handed_over_is_lost(bucket: FolderBucket) -> None:
    """It counts once, however often it is written; other shares and runs are not lost."""
    assert not is_lost(bucket, MADE, 1, "uid")
    write_loss(bucket, ALONE)
    write_loss(bucket, replace(ALONE, is_only_copy=False))
    assert is_lost(bucket, MADE, 1, "uid")
    assert not is_lost(bucket, MADE, 0, "uid")
    assert not is_lost(bucket, MADE, 1, "of another run")
    assert not is_lost(bucket, replace(MADE, step=31), 1, "uid")


def test_share_with_two_holders_is_lost_when_both_say_so(bucket: FolderBucket) -> None:
    write_loss(bucket, replace(ALONE, is_only_copy=False))
    assert not is_lost(bucket, MADE, 1, "uid")
    write_loss(bucket, replace(ALONE, holder=1, is_only_copy=False))
    assert is_lost(bucket, MADE, 1, "uid")


def test_second_holder_alone_loses_nothing(bucket: FolderBucket) -> None:
    write_loss(bucket, replace(ALONE, holder=1, is_only_copy=False))
    assert not is_lost(bucket, MADE, 1, "uid")


@pytest.mark.parametrize("holder", [0, 1])
def test_share_that_any_holder_uploaded_is_not_lost(bucket: FolderBucket, holder: int) -> None:
    write_loss(bucket, ALONE)
    fragment = Fragment(
        snapshot=MADE, uid="uid", share=1, shares=2, parts=(), pieces=(), header=None
    )
    bucket.create(fragment_name(MADE, 1, holder), fragment.to_json())
    assert not is_lost(bucket, MADE, 1, "uid")


def test_damaged_loss_says_nothing(bucket: FolderBucket) -> None:
    bucket.create(loss_name(MADE, 1, 0), ALONE.to_json()[:-10])
    assert not is_lost(bucket, MADE, 1, "uid")


def test_loss_of_another_share_is_refused() -> None:
    text = ALONE.to_json()
    assert ShareLoss.from_json(text, MADE, 1, 0) == ALONE
    for made, share, holder in ((replace(MADE, run=2), 1, 0), (MADE, 2, 0), (MADE, 1, 1)):
        with pytest.raises(Damaged, match="another share"):
            ShareLoss.from_json(text, made, share, holder)

"""Upload and commit: what is in the way, and what is not believed."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from elasticd.checkpoint.commit.committer import (
    CommitOutcome,
    Committer,
    fragment_of,
    read_manifest,
)
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.upload import Abandoned, UploadShare, upload
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot, fragment_name, part_name
from elasticd.checkpoint.format.manifest import Fragment, Manifest, Piece, Tensor
from elasticd.checkpoint.format.share_layout import laid_out, shares
from elasticd.checkpoint.storage.bucket import Data
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.errors import EnvironmentProblem, Unavailable
from tests.unit.checkpoint.records import SNAPSHOT, fragments, header, manifest

TENSORS = (Tensor("w", "uint8", (100,)),)


def a_bucket() -> FsspecBucket:
    return FsspecBucket(f"memory://{secrets.token_hex(8)}", {})


def committer(bucket: FsspecBucket) -> Committer:
    return Committer(bucket=bucket, log=CommitLog(bucket), uid="uid", job="job")


def a_share(holder: int = 0) -> UploadShare:
    (slabs,) = shares(TENSORS, [True], 1)
    return UploadShare(
        snapshot=SNAPSHOT, share=0, shares=1, holder=holder, layout=laid_out(TENSORS, slabs),
        header=replace(header(1), tensors=TENSORS),
    )  # fmt: skip


def uploaded(bucket: FsspecBucket, data: bytes, *, is_wanted: bool = True) -> Fragment:
    with ThreadPoolExecutor(2) as pool:
        return upload(
            bucket, a_share(), memoryview(data), uid="uid", writer="0123abcd", pool=pool,
            is_wanted=lambda: is_wanted,
        )  # fmt: skip


def test_upload_again_of_the_same_bytes_is_the_same_fragment() -> None:
    """A save that failed later is done again by the same process."""
    bucket = a_bucket()
    assert uploaded(bucket, b"x" * 100) == uploaded(bucket, b"x" * 100)


def test_upload_of_other_bytes_under_the_same_name_is_damaged() -> None:
    """Their checksums would be committed for bytes that are not there."""
    bucket = a_bucket()
    uploaded(bucket, b"x" * 100)
    for other in (b"y" * 100, b"x" * 99 + b"y"):
        with pytest.raises(Damaged, match="other bytes"):
            uploaded(bucket, other)


def test_upload_that_nobody_wants_any_more_writes_no_fragment() -> None:
    """So it is never committed."""
    bucket = a_bucket()
    with pytest.raises(Abandoned):
        uploaded(bucket, b"x" * 100, is_wanted=False)
    assert fragment_of(bucket, SNAPSHOT, 0, "uid") is None


def test_fragment_is_written_after_its_parts() -> None:
    """A part that cannot be written leaves none."""

    class Broken(FsspecBucket):
        def create(self, name: str, data: Data) -> bool:
            if name.endswith(".bin"):
                raise Unavailable("It is full.")
            return super().create(name, data)

    bucket = Broken(f"memory://{secrets.token_hex(8)}", {})
    with pytest.raises(Unavailable):
        uploaded(bucket, b"x" * 100)
    assert bucket.list("", 10, lambda name: True) == []


def test_upload_for_which_there_is_no_room_leaves_what_it_found() -> None:
    """Its parts would take the room of the next snapshot, and nobody can make a checkpoint of them.

    Those of another process stay: its fragment may come.
    """

    class Full(FsspecBucket):
        def create(self, name: str, data: Data) -> bool:
            if name.endswith("-0123abcd-00002.bin"):
                raise EnvironmentProblem("It is full: free some space.")
            return super().create(name, data)

    bucket = Full(f"memory://{secrets.token_hex(8)}", {})
    theirs = f"{SNAPSHOT.folder}/{part_name(0, 0, 'ffffffff', 0)}"
    earlier = f"{SNAPSHOT.folder}/{part_name(0, 0, '0123abcd', 0)}"
    bucket.create(theirs, b"x" * 100)
    bucket.create(earlier, b"x" * 40)
    share = a_share()
    layout = replace(share.layout, parts=((0, 40), (40, 40), (80, 20)))
    with ThreadPoolExecutor(1) as pool, pytest.raises(EnvironmentProblem, match="It is full"):
        upload(
            bucket, replace(share, layout=layout), memoryview(b"x" * 100), uid="uid",
            writer="0123abcd", pool=pool,
        )  # fmt: skip
    left = [each.name for each in bucket.list("", 10, lambda name: True)]
    assert sorted(left) == sorted([theirs, earlier])


def test_second_holders_fragment_serves_where_the_firsts_cannot() -> None:
    """It is not there, it is damaged, or it is of another share."""
    first, second = fragments()
    for wrong in (None, b"{}", second.to_json(), replace(first, snapshot=OTHER).to_json()):
        bucket = a_bucket()
        if wrong is not None:
            bucket.create(fragment_name(SNAPSHOT, 0, 0), wrong)
        bucket.create(fragment_name(SNAPSHOT, 0, 1), first.to_json())
        assert fragment_of(bucket, SNAPSHOT, 0, "uid") == first
        bucket.create(fragment_name(SNAPSHOT, 1, 0), second.to_json())
        assert committer(bucket).gather(SNAPSHOT, 2, ()) == manifest()


OTHER = Snapshot(run=1, generation=2, step=31)


def test_missing_share_is_no_checkpoint_yet() -> None:
    """Whoever looks later may find it."""
    bucket = a_bucket()
    first, second = fragments()
    assert committer(bucket).gather(SNAPSHOT, 2, [first]) is None
    assert committer(bucket).gather(SNAPSHOT, 2, [second, first]) == manifest()


def test_manifest_in_place_is_committed_if_it_is_whole() -> None:
    """Another holder's parts are as good; the entry names what stands there."""
    bucket = a_bucket()
    committer(bucket).open(2, 0)
    theirs = replace(manifest(), header=replace(header(), taken_unix_s=9.0))
    bucket.create(SNAPSHOT.manifest, theirs.to_json())
    assert committer(bucket).commit(manifest()) is CommitOutcome.COMMITTED
    (entry,) = CommitLog(bucket).checkpoints()
    assert read_manifest(bucket, entry) == theirs


def test_manifest_that_was_exchanged_later_is_not_read() -> None:
    """Though it is one, and of the same snapshot."""
    bucket = a_bucket()
    committer(bucket).open(2, 0)
    committer(bucket).commit(manifest())
    (entry,) = CommitLog(bucket).checkpoints()
    other = replace(manifest(), header=replace(header(), taken_unix_s=9.0))
    bucket.replace(SNAPSHOT.manifest, other.to_json())
    with pytest.raises(Damaged, match="not the one that was committed"):
        read_manifest(bucket, entry)


@pytest.mark.parametrize(
    "standing",
    [
        b"{}",
        manifest().to_json()[:-3],
        replace(manifest(), header=replace(header(), snapshot=OTHER)).to_json(),
        replace(manifest(), pieces=()).to_json(),
    ],
    ids=["none", "cut", "another's", "not whole"],
)
def test_manifest_in_place_that_nobody_can_read_is_not_committed(standing: bytes) -> None:
    """An entry would promise what no reader gets."""
    bucket = a_bucket()
    committer(bucket).open(2, 0)
    bucket.create(SNAPSHOT.manifest, standing)
    with pytest.raises(Damaged):
        committer(bucket).commit(manifest())
    assert list(CommitLog(bucket).checkpoints()) == []


def test_manifest_beyond_a_readers_limits_is_not_committed() -> None:
    """It is noticed while the state is still there, not when it is needed."""
    bucket = a_bucket()
    committer(bucket).open(2, 0)
    wide = replace(manifest(), header=replace(header(), version="x" * 20_000))
    torn = replace(manifest(), pieces=(*manifest().pieces, Piece(0, (0, 0), (1, 1), 0, 39)))
    for wrong in (wide, torn):
        assert isinstance(wrong, Manifest)
        with pytest.raises(Damaged):
            committer(bucket).commit(wrong)
    assert bucket.list("steps", 10, lambda name: True) == []
    assert committer(bucket).commit(manifest()) is CommitOutcome.COMMITTED

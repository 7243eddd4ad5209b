"""An uploader dies in the middle of a share's parts, and another begins: nothing is mixed.

By hand at every request, before it took effect and after; a process dies so in
`integration/train/test_checkpoint_faults.py`.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import (
    CommitOutcome,
    Committer,
    fragment_of,
    read_manifest,
)
from elasticd.checkpoint.commit.fetch import verify
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.upload import UploadShare, upload
from elasticd.checkpoint.format.manifest import Fragment
from elasticd.checkpoint.storage.bucket import Bucket, Data
from elasticd.checkpoint.storage.folder import FolderBucket
from tests.unit.checkpoint.meddling import Crash, Meddling
from tests.unit.checkpoint.records import header
from tests.unit.keeper.site import (
    PATIENCE_S,
    SHARE_BYTES,
    Gate,
    Node,
    a_plan,
    a_snapshot,
    committed,
    tensors,
)

PARTS = 5
MADE = a_snapshot()
DATA = bytes(range(SHARE_BYTES))
FIRST, SECOND = "00000001", "00000002"
"""Names of uploaders."""


class Dying(Meddling):
    """Its process ends at the request of this number, which takes effect or does not."""

    def __init__(self, inner: Bucket, at: int, *, is_done: bool) -> None:
        super().__init__(inner, lambda verb, name: None)
        self._left, self._is_done = at, is_done

    def create(self, name: str, data: Data) -> bool:
        self._left -= 1
        if self._left < 0 and not (self._left == -1 and self._is_done):
            raise Crash(name)
        found = self.inner.create(name, data)
        if self._left < 0:
            raise Crash(name)
        return found


def uploaded(bucket: Bucket, writer: str) -> Fragment:
    """Upload, one part after the other."""
    share = UploadShare(
        snapshot=MADE, share=0, shares=1, holder=0, layout=a_plan(parts=PARTS).layout,
        header=replace(header(1), snapshot=MADE, tensors=tensors(1)),
    )  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        return upload(bucket, share, memoryview(DATA), uid="uid", writer=writer, pool=pool)


def committed_by_a_stranger(bucket: Bucket) -> set[str]:
    """Commit by what stands in the bucket, verify every byte; return whose parts it has."""
    last = Committer(bucket=bucket, log=CommitLog(bucket), uid="uid", job="job")
    last.open(1, 0)
    manifest = last.gather(MADE, 1, ())
    assert manifest is not None and last.commit(manifest) is CommitOutcome.COMMITTED
    assert len(manifest.parts) == PARTS
    read = b"".join(bucket.read(f"{MADE.folder}/{part.name}", 1000) for part in manifest.parts)
    assert read == DATA
    with ThreadPoolExecutor(1) as pool:
        assert verify(bucket, manifest, pool) == []
    return writers([part.name for part in manifest.parts])


def writers(names: list[str]) -> set[str]:
    return {name.split("-")[2] for name in names}


EVERY_MOMENT = [(at, is_done) for at in range(PARTS + 1) for is_done in (False, True)]
"""After so many objects; the last of them is the fragment."""


@pytest.mark.parametrize(("at", "is_done"), EVERY_MOMENT)
@pytest.mark.parametrize("second", [FIRST, SECOND], ids=["the same", "another"])
def test_upload_that_was_left_in_the_middle_is_begun_again(
    tmp_path: Path, at: int, is_done: bool, second: str
) -> None:
    """By the same process, which finds its own parts and keeps them, or by a new one, which
    writes its own: the checkpoint has all parts of one of them, and the right bytes."""
    bucket = FolderBucket(str(tmp_path))
    with pytest.raises(Crash):
        uploaded(Dying(bucket, at, is_done=is_done), FIRST)
    is_complete = at == PARTS and is_done
    assert (fragment_of(bucket, MADE, 0, "uid") is not None) == is_complete
    assert writers([part.name for part in uploaded(bucket, second).parts]) == {second}
    assert committed_by_a_stranger(bucket) == ({FIRST} if is_complete else {second})
    left = writers([path.name for path in (tmp_path / MADE.folder).glob("*.bin")])
    assert left == {second} | ({FIRST} if at or is_done else set())


@pytest.mark.parametrize("at", range(1, PARTS + 1))
def test_process_that_dies_again_and_again_loses_only_time(tmp_path: Path, at: int) -> None:
    """Each new one gets as far as the one before, and the last one gets through."""
    bucket = FolderBucket(str(tmp_path))
    for life in range(4):
        with pytest.raises(Crash):
            uploaded(Dying(bucket, at, is_done=False), f"{life:08x}")
        assert fragment_of(bucket, MADE, 0, "uid") is None
    uploaded(bucket, "ffffffff")
    assert committed_by_a_stranger(bucket) == {"ffffffff"}


def test_keeper_that_is_started_again_saves_the_same_step_anew(tmp_path: Path) -> None:
    """Its memory is gone, so workers copy again; and the one that was thought dead, and was only
    slow, finds that the checkpoint is there and changes nothing of it."""
    gate = Gate("create", "00002.bin")
    slow = Node(gate.over(tmp_path), parallel=1)
    slow.committer.open(1, 0)
    slow.take(MADE, a_plan(parts=PARTS))
    gate.wait_reached()
    fresh = Node(FolderBucket(str(tmp_path)))
    fresh.take(MADE, a_plan(parts=PARTS))
    try:
        job = fresh.saver.wait(MADE, PATIENCE_S)
    finally:
        gate.opened.set()
    assert job is not None and job.outcome is CommitOutcome.COMMITTED, job
    (entry,) = committed(fresh.bucket)
    before = read_manifest(fresh.bucket, entry)
    assert len(writers([part.name for part in before.parts])) == 1
    late = slow.saver.wait(MADE, PATIENCE_S)
    assert late is not None and late.outcome in (CommitOutcome.ALREADY, CommitOutcome.TOO_LATE)
    slow.saver.wait_idle(PATIENCE_S)
    assert committed(fresh.bucket) == [entry]
    assert read_manifest(fresh.bucket, entry) == before
    with ThreadPoolExecutor(1) as pool:
        assert verify(fresh.bucket, before, pool) == []

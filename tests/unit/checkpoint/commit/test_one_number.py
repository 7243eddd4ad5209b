"""Two runs that a storage let have one number: what they write never becomes one checkpoint.

So it went with OpenStack Swift, which answers 412 if an object is there, and lets several writers
win that come at the same moment.
"""

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
from elasticd.checkpoint.commit.log import CommitLog, LogState
from elasticd.checkpoint.commit.upload import UploadShare, upload
from elasticd.checkpoint.format.entry import LogEntryKind
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot, entry_name
from elasticd.checkpoint.format.manifest import Fragment, Tensor, merged
from elasticd.checkpoint.format.share_layout import laid_out, shares
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.checkpoint.records import header, manifest

TENSORS = (Tensor("w", "uint8", (200,)),)
MADE = Snapshot(run=1, generation=1, step=10)
SHARES = 2


class Twins:
    """Two runs of a job, `first` and `second`; both were told that they are run 1."""

    def __init__(self) -> None:
        self.bucket = FsspecBucket(f"memory://{secrets.token_hex(8)}", {})
        self.first = Committer(bucket=self.bucket, log=CommitLog(self.bucket), uid="a", job="job")

        def before(verb: str, name: str) -> None:
            if verb == "create" and name == entry_name(1):
                assert self.first.open(1, 0) == 1
                self.bucket.delete([name])  # So that the second one wins too.

        lenient = Meddling(self.bucket, before)
        second = Committer(bucket=lenient, log=CommitLog(lenient), uid="b", job="job")
        assert second.open(1, 0) == 1
        self.second = replace(second, bucket=self.bucket, log=CommitLog(self.bucket))

    def upload(self, committer: Committer, share: int) -> Fragment:
        """Bring a share of the same snapshot, with bytes of its own."""
        uid = committer.uid
        layout = laid_out(TENSORS, shares(TENSORS, [True], SHARES)[share])
        head = replace(header(SHARES), snapshot=MADE, uid=uid, tensors=TENSORS)
        data = memoryview(uid.encode() * layout.size)
        given = UploadShare(
            snapshot=MADE, share=share, shares=SHARES, holder=0, layout=layout,
            header=head if share == 0 else None,
        )  # fmt: skip
        with ThreadPoolExecutor(1) as pool:
            return upload(self.bucket, given, data, uid=uid, writer=f"{uid}0000000", pool=pool)


def test_shares_of_two_runs_are_never_put_together() -> None:
    """Nobody takes a fragment of the other's, whoever was first with its name."""
    twins = Twins()
    own = twins.upload(twins.second, 0)
    theirs = twins.upload(twins.first, 1)
    assert twins.second.gather(MADE, SHARES, [own]) is None
    assert twins.first.gather(MADE, SHARES, [theirs]) is None
    assert fragment_of(twins.bucket, MADE, 1, "a") == theirs
    with pytest.raises(Damaged, match="Share 1 belongs to something else"):
        merged([own, theirs])
    whole = [own, twins.upload(twins.second, 1)]
    assert {part.name[8] for part in merged(whole).parts} == {"b"}


def test_run_whose_entry_was_written_over_commits_nothing() -> None:
    """It asks who opened, though it was told that it had; the other one goes on."""
    twins = Twins()
    for committer, outcome in (
        (twins.first, CommitOutcome.TOO_LATE),
        (twins.second, CommitOutcome.COMMITTED),
    ):
        log_state = committer.log.state()
        assert log_state.uid == "b"
        assert committer.may_commit(log_state, MADE) is (outcome is CommitOutcome.COMMITTED)
        parts = [twins.upload(committer, share) for share in range(SHARES)]
        assert committer.commit(merged(parts)) is outcome
        twins.bucket.delete([MADE.manifest] if outcome is CommitOutcome.TOO_LATE else [])
    (entry,) = CommitLog(twins.bucket).checkpoints()
    assert entry.uid == read_manifest(twins.bucket, entry).header.uid == "b"


def test_manifest_of_the_other_run_is_not_committed() -> None:
    """Another holder's would be as good, another run's is another state."""
    twins = Twins()
    theirs = merged([twins.upload(twins.first, share) for share in range(SHARES)])
    assert twins.bucket.create(MADE.manifest, theirs.to_json())
    own = merged([twins.upload(twins.second, share) for share in range(SHARES)])
    assert twins.second.commit(own) is CommitOutcome.TOO_LATE
    assert list(CommitLog(twins.bucket).checkpoints()) == []


def test_manifest_that_is_not_of_the_entrys_run_is_damaged() -> None:
    """Whoever brought the two together: a reader believes it no more than a wrong checksum."""
    bucket = FsspecBucket(f"memory://{secrets.token_hex(8)}", {})
    committer = Committer(bucket=bucket, log=CommitLog(bucket), uid="uid", job="job")
    committer.open(2, 0)
    assert committer.commit(manifest()) is CommitOutcome.COMMITTED
    (entry,) = CommitLog(bucket).checkpoints()
    assert read_manifest(bucket, entry) == manifest()
    with pytest.raises(Damaged, match="is of another run"):
        read_manifest(bucket, replace(entry, uid="other"))


def test_checkpoint_of_the_other_run_is_not_the_newest_of_this_one() -> None:
    """Of two with one number the one counts that opened it."""
    twins = Twins()
    entry = CommitLog(twins.bucket).entry(1)
    log_state = LogState().after(entry)
    made = replace(entry, kind=LogEntryKind.COMMITTED, snapshot=MADE)
    assert log_state.after(made).last == MADE
    assert log_state.after(replace(made, uid="a")) == log_state
    later = replace(MADE, generation=7)
    assert log_state.after(replace(made, uid="a", snapshot=later)) == log_state

"""Writers of several generations and runs at once: the log stays whole and the newest rules."""

import contextlib
import random
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.commit.log import CommitLog, LogState, may_commit
from elasticd.checkpoint.format.entry import LogEntryKind
from elasticd.checkpoint.format.layout import Snapshot, entry_name
from elasticd.checkpoint.storage.bucket import Bucket, Data
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.errors import Fenced, Refused
from tests.integration.checkpoint.saving_case import (
    assert_whole,
    committer,
    load,
    save,
)


class Interrupted(FolderBucket):
    """A folder in which somebody else acts just before an object of this name is created."""

    def __init__(self, path: Path, name: str, action: Callable[[], object]) -> None:
        super().__init__(str(path))
        self._name, self._action = name, action
        self.is_over = False

    def create(self, name: str, data: Data) -> bool:
        if name == self._name and not self.is_over:
            self.is_over = True
            self._action()
        return super().create(name, data)


def snapshot(step: int, generation: int = 1, run: int = 1) -> Snapshot:
    return Snapshot(run=run, generation=generation, step=step)


def assert_log_is_in_order(bucket: Bucket) -> None:
    """No number is missing, and every entry was allowed by those before it."""
    log = CommitLog(bucket)
    log_state = LogState()
    for number in range(1, log.newest_number() + 1):
        entry = log.entry(number)
        if entry.kind is LogEntryKind.COMMITTED:
            assert may_commit(log_state, entry.snapshot), f"entry {number}: {entry.snapshot}"
        assert (entry.snapshot.run, entry.snapshot.generation) != (0, 0)
        log_state = log_state.after(entry)
        assert CommitLog(bucket).state(number) == log_state


def test_generation_that_opens_between_decision_and_write_fences_the_older(tmp_path: Path) -> None:
    """The older had read that it may; the number is taken, so it has to read again."""
    plain = FolderBucket(str(tmp_path))
    committer(plain).open(1, 0)
    late = Interrupted(tmp_path, entry_name(2), lambda: committer(plain).open(2, 5))
    assert save(late, snapshot(8)) is CommitOutcome.TOO_LATE
    assert late.is_over
    assert load(plain) is None
    assert_log_is_in_order(plain)


def test_older_generation_may_finish_what_the_newer_went_on_from(tmp_path: Path) -> None:
    """Step 5 is in the history of the generation that began at step 5."""
    plain = FolderBucket(str(tmp_path))
    committer(plain).open(1, 0)
    late = Interrupted(tmp_path, entry_name(2), lambda: committer(plain).open(2, 5))
    assert save(late, snapshot(5)) is CommitOutcome.COMMITTED
    assert assert_whole(plain) == [snapshot(5)]
    assert_log_is_in_order(plain)


def test_same_checkpoint_is_committed_once(tmp_path: Path) -> None:
    """Two nodes see that all fragments are there, and both commit."""
    plain = FolderBucket(str(tmp_path))
    committer(plain).open(1, 0)
    both = Interrupted(tmp_path, entry_name(2), lambda: save(plain, snapshot(5), writer="11111111"))
    assert save(both, snapshot(5)) is CommitOutcome.ALREADY
    assert assert_whole(plain) == [snapshot(5)]


def test_later_run_fences_the_earlier_for_good(tmp_path: Path) -> None:
    """Also in a generation with a higher number, and also when it opens another one."""
    bucket = FolderBucket(str(tmp_path))
    assert committer(bucket, "a").open(7, 0) == 1
    assert save(bucket, snapshot(3, 7), uid="a") is CommitOutcome.COMMITTED
    assert committer(bucket, "b").open(1, 3) == 2
    assert save(bucket, snapshot(9, 7), uid="a") is CommitOutcome.TOO_LATE
    assert save(bucket, snapshot(2, 8), uid="a") is CommitOutcome.TOO_LATE
    with pytest.raises(Fenced):
        committer(bucket, "a").open(8, 9)
    assert committer(bucket, "c").open(1, 3) == 3
    for old in ("a", "b"):
        with pytest.raises(Fenced):
            committer(bucket, old).open(9, 9)
    assert save(bucket, snapshot(4, 1, 3), uid="c") is CommitOutcome.COMMITTED
    assert_log_is_in_order(bucket)


def test_run_that_loses_the_race_for_an_empty_log_is_fenced(tmp_path: Path) -> None:
    """Else both would think that they are the first."""
    plain = FolderBucket(str(tmp_path))
    loser = Interrupted(tmp_path, entry_name(1), lambda: committer(plain, "b").open(1, 0))
    with pytest.raises(Fenced):
        committer(loser, "a").open(1, 0)
    assert CommitLog(plain).state().uid == "b"


def test_opening_twice_is_one_entry(tmp_path: Path) -> None:
    """Each node of a generation does it; an older generation is told that it is one."""
    bucket = FolderBucket(str(tmp_path))
    assert committer(bucket).open(3, 0) == 1
    assert committer(bucket).open(3, 0) == 1
    assert CommitLog(bucket).newest_number() == 1
    with pytest.raises(Fenced):
        committer(bucket).open(2, 0)


def test_another_job_is_refused(tmp_path: Path) -> None:
    """Two jobs on one URL would remove each other's checkpoints."""
    bucket = FolderBucket(str(tmp_path))
    committer(bucket).open(1, 0)
    other = committer(bucket, "uid-2")
    with pytest.raises(Refused, match="--job"):
        type(other)(bucket=bucket, log=CommitLog(bucket), uid="uid-2", job="other").open(1, 0)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_older_generation_never_becomes_the_newest_again(kind: str, tmp_path: Path) -> None:
    """Four generations, each opened at an earlier step than the one before reached, all at once."""
    for seed in range(6):
        bucket: Bucket = (
            FolderBucket(str(tmp_path / str(seed)))
            if kind == "folder"
            else FsspecBucket(f"memory://{secrets.token_hex(8)}", {})
        )
        committer(bucket).open(1, 0)
        barrier = threading.Barrier(4)

        def write(generation: int, bucket: Bucket = bucket, seed: int = seed) -> None:
            draw = random.Random(seed * 10 + generation)
            barrier.wait()  # noqa: B023
            with contextlib.suppress(Fenced):  # And goes on all the same, as a zombie does.
                committer(bucket).open(generation, 10 - generation)
            for _ in range(4):
                step = draw.randrange(1, 30)
                writer = f"{generation:08x}"
                save(bucket, snapshot(step, generation), writer=writer)

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(write, generation) for generation in range(1, 5)]:
                done.result()
        assert_log_is_in_order(bucket)
        assert_whole(bucket)
        assert CommitLog(bucket).state().generation == 4
        assert save(bucket, snapshot(99, 3)) is CommitOutcome.TOO_LATE
        assert save(bucket, snapshot(99, 4)) is CommitOutcome.COMMITTED

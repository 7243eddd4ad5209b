"""Checkpoints are given up in the log before anything is deleted, whoever else is at it."""

import json
import time
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome, read_manifest
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.read_lease import GRACE_S, LEASE_S, reading
from elasticd.checkpoint.format.entry import LogEntryKind
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import entry_name
from elasticd.checkpoint.retention.deletion import apply_retention, remove
from elasticd.checkpoint.retention.policy import Retention
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.dcp.whole_checkpoint import load
from elasticd.errors import ElasticdError, NotFound, Refused
from tests.unit.checkpoint.meddling import Crash, Meddling
from tests.unit.checkpoint.stock_case import Maker, same, state_at

TWO = Retention(last=2)


def lease(bucket: Bucket, number: int, until_unix_s: float, token: str = "ab") -> None:
    text = json.dumps({"number": number, "until_unix_s": until_unix_s}).encode()
    bucket.replace(f"leases/{token}.json", text)


def test_the_newest_stay_and_the_objects_of_the_rest_are_gone(tmp_path: Path) -> None:
    """And the log goes on: who may write is as before, and the next commit keeps its number."""
    maker = Maker.of(tmp_path, steps=5)
    before = maker.log.state()
    removal = apply_retention(maker.bucket, maker.log, TWO)
    assert removal.numbers == (2, 3, 4) and removal.objects == 15
    assert maker.numbers() == [6, 5] and maker.folders() == [40, 50]
    fresh = CommitLog(maker.bucket)
    assert fresh.state() == before and fresh.kept() == (5, 6)
    assert fresh.entry(7).kind is LogEntryKind.REMOVED
    maker.save(60)
    assert maker.numbers() == [8, 6, 5]


def test_nothing_to_give_up_writes_nothing(tmp_path: Path) -> None:
    """The keeper asks after each commit."""
    maker = Maker.of(tmp_path, steps=2)
    assert apply_retention(maker.bucket, maker.log, TWO).numbers == ()
    assert apply_retention(maker.bucket, maker.log, Retention(last=0)).numbers == ()
    assert maker.log.newest_number() == 3


def test_an_empty_log_has_nothing_to_give_up(tmp_path: Path) -> None:
    """Before the first checkpoint, and before the first run."""
    maker = Maker(f"file://{tmp_path}")
    assert apply_retention(maker.bucket, maker.log, TWO).numbers == ()
    maker.open(1)
    assert apply_retention(maker.bucket, maker.log, TWO).numbers == ()


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    """It tells the same numbers."""
    maker = Maker.of(tmp_path, steps=4)
    before = sorted(path for path in tmp_path.rglob("*"))
    assert apply_retention(maker.bucket, maker.log, TWO, is_dry_run=True).numbers == (2, 3)
    assert remove(maker.bucket, maker.log, [2], is_dry_run=True).numbers == (2,)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_two_retainers_at_once_do_no_harm(tmp_path: Path) -> None:
    """The second comes just before the first one's entry, and again before its first deletion."""
    maker = Maker.of(tmp_path, steps=6)
    busy = False

    def before(verb: str, name: str) -> None:
        nonlocal busy
        is_time = (verb, name[:7]) in {("create", "commits"), ("delete", "steps/0")}
        if is_time and not busy:
            busy = True
            apply_retention(maker.bucket, CommitLog(maker.bucket), Retention(last=3))
            busy = False

    meddled = Meddling(maker.bucket, before)
    removal = apply_retention(meddled, CommitLog(meddled), TWO)
    assert removal.numbers == (5,) == (maker.log.entry(5).number,)
    assert maker.numbers() == [7, 6] and maker.folders() == [50, 60]


def test_a_commit_at_the_same_time_is_not_lost(tmp_path: Path) -> None:
    """It takes the number that the removal wanted; the removal looks again, and counts it."""
    maker = Maker.of(tmp_path, steps=3)
    is_done = False

    def before(verb: str, name: str) -> None:
        nonlocal is_done
        if verb == "create" and not is_done:
            is_done = True
            maker.save(40)

    meddled = Meddling(maker.bucket, before)
    assert apply_retention(meddled, CommitLog(meddled), TWO).numbers == (2, 3)
    assert maker.numbers() == [5, 4] and maker.folders() == [30, 40]


def test_a_crash_at_any_request_leaves_what_is_kept_whole(tmp_path: Path) -> None:
    """Each request in turn is the last one; what a fresh reader finds kept can be loaded."""
    crashed_after_removal = 0
    for at in range(1000):
        maker = Maker.of(tmp_path / str(at), steps=3)
        count = 0

        def before(verb: str, name: str, at: int = at) -> None:
            nonlocal count
            count += 1
            if count > at:
                raise Crash

        meddled = Meddling(maker.bucket, before)
        try:
            apply_retention(meddled, CommitLog(meddled), TWO)
        except Crash:
            pass
        else:
            assert maker.numbers() == [4, 3]
            break
        numbers = maker.numbers()
        assert numbers in ([4, 3, 2], [4, 3])
        crashed_after_removal += numbers == [4, 3]
        for number in numbers:
            _, state = load(maker.bucket, maker.log.entry(number))
            assert same(state, state_at(10 * (number - 1)))
        # Whoever comes next finds nothing to do, or does it.
        apply_retention(maker.bucket, CommitLog(maker.bucket), TWO)
        assert maker.numbers() == [4, 3]
    assert crashed_after_removal > 3


def test_a_damaged_one_does_not_count_as_one_of_the_newest_two(tmp_path: Path) -> None:
    """If the newest two cannot be read, the two before them are all that is left."""
    maker = Maker.of(tmp_path, steps=5)
    for number in (5, 6):
        (tmp_path / maker.log.entry(number).snapshot.manifest).write_bytes(b"{}")
    assert apply_retention(maker.bucket, maker.log, TWO).numbers == (2,)
    assert maker.numbers() == [6, 5, 4, 3]


def test_objects_are_deleted_though_the_manifest_is_damaged_or_gone(tmp_path: Path) -> None:
    """Their names are then nowhere but in the listing."""
    maker = Maker.of(tmp_path, steps=4)
    (tmp_path / maker.log.entry(2).snapshot.manifest).write_bytes(b"?")
    (tmp_path / maker.log.entry(3).snapshot.manifest).unlink()
    assert apply_retention(maker.bucket, maker.log, TWO).numbers == (2, 3)
    assert maker.folders() == [30, 40]


def test_what_a_holder_uploaded_in_vain_goes_too(tmp_path: Path) -> None:
    """No manifest names the parts of whoever came second."""
    maker = Maker.of(tmp_path, steps=3)
    folder = tmp_path / maker.log.entry(2).snapshot.folder
    (folder / "00001-1-0000000f-00000.bin").write_bytes(b"late")
    (folder / ".00001-1.json.0011.tmp").write_bytes(b"crash")
    apply_retention(maker.bucket, maker.log, TWO)
    assert not folder.exists()


def test_a_number_whose_entry_is_damaged_stays_until_a_person_removes_it(tmp_path: Path) -> None:
    """What it named is not known: perhaps the one that is needed."""
    maker = Maker.of(tmp_path, steps=4)
    (tmp_path / entry_name(2)).write_bytes(b"broken")
    fresh = CommitLog(maker.bucket)
    assert apply_retention(maker.bucket, fresh, TWO).numbers == (3,)
    assert fresh.kept() == (2, 4, 5)
    removal = remove(maker.bucket, fresh, [2])
    assert (removal.unreadable, removal.gone) == ((2,), ())
    assert CommitLog(maker.bucket).kept() == (4, 5)
    assert maker.folders() == [10, 30, 40]


def test_what_is_being_read_stays(tmp_path: Path) -> None:
    """As long as its lease counts: an hour longer than it says."""
    maker = Maker.of(tmp_path, steps=4)
    lease(maker.bucket, 2, time.time() - GRACE_S + 60)
    removal = apply_retention(maker.bucket, maker.log, TWO)
    assert (removal.numbers, removal.busy) == ((3,), (2,))
    with pytest.raises(Refused, match="is being read"):
        remove(maker.bucket, maker.log, [2], is_forced=True)
    lease(maker.bucket, 2, time.time() - GRACE_S - 60)
    assert apply_retention(maker.bucket, maker.log, TWO).numbers == (2,)


def test_a_reader_who_comes_between_the_entry_and_the_deletion_is_spared(tmp_path: Path) -> None:
    """It had looked into the log before the entry was there, and wrote its lease after that."""
    maker = Maker.of(tmp_path, steps=4)

    def before(verb: str, name: str) -> None:
        if verb == "replace":  # The hint: the entry is written.
            lease(maker.bucket, 2, time.time() + LEASE_S)

    meddled = Meddling(maker.bucket, before)
    removal = apply_retention(meddled, CommitLog(meddled), TWO)
    assert removal.numbers == (2, 3) and removal.left == (2,)
    assert maker.folders() == [10, 30, 40]
    # And one who looks into the log only now is told.
    with pytest.raises(Damaged, match="given up"), reading(maker.bucket, 2):
        pass


def test_a_snapshot_is_not_committed_twice(tmp_path: Path) -> None:
    """A run went back to step 10, and then a late holder of the first generation brings it again:
    a second entry would count on what the first one's removal deletes."""
    maker = Maker.of(tmp_path, steps=2)
    twice = read_manifest(maker.bucket, maker.log.entry(2))
    maker.open(2, step=10)
    assert maker.committer.commit(twice) is CommitOutcome.TOO_LATE


@pytest.mark.parametrize("number", [3, 4])
def test_one_of_the_newest_two_is_removed_by_force_only(tmp_path: Path, number: int) -> None:
    """The other one and all else stay."""
    maker = Maker.of(tmp_path, steps=3)
    with pytest.raises(Refused, match="--force"):
        remove(maker.bucket, maker.log, [2, number])
    assert maker.numbers() == [4, 3, 2]
    assert remove(maker.bucket, maker.log, [number], is_forced=True).numbers == (number,)
    assert maker.numbers() == sorted({2, 3, 4} - {number}, reverse=True)


def test_all_can_be_removed_by_force_and_training_goes_on(tmp_path: Path) -> None:
    """The ruling survives: an older step still comes too late."""
    maker = Maker.of(tmp_path, steps=2)
    late = read_manifest(maker.bucket, maker.log.entry(2))
    remove(maker.bucket, maker.log, [2, 3], is_forced=True)
    assert maker.numbers() == [] and maker.folders() == []
    assert maker.committer.commit(late) is CommitOutcome.TOO_LATE
    maker.save(30)
    assert len(maker.numbers()) == 1


def test_a_number_that_is_not_there_removes_nothing(tmp_path: Path) -> None:
    """An opened generation's number is none either."""
    maker = Maker.of(tmp_path, steps=4)
    for numbers in ([2, 99], [1]):
        with pytest.raises(NotFound, match=f"no checkpoint {max(numbers)}"):
            remove(maker.bucket, maker.log, numbers)
    assert maker.numbers() == [5, 4, 3, 2]


def test_a_service_that_refuses_deletions_is_heard(tmp_path: Path) -> None:
    """The entry stands by then; the operator learns why the objects do not go."""
    maker = Maker.of(tmp_path, steps=3)

    def before(verb: str, name: str) -> None:
        if verb == "delete":
            raise Refused("no permission to delete")

    meddled = Meddling(maker.bucket, before)
    with pytest.raises(ElasticdError, match="no permission"):
        apply_retention(meddled, CommitLog(meddled), TWO)
    assert maker.numbers() == [4, 3] and maker.folders() == [10, 20, 30]

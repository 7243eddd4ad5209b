"""Garbage is what nobody can need any more; all else waits."""

import json
import os
import time
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.log import CommitLog, LogState, may_commit
from elasticd.checkpoint.commit.read_lease import GRACE_S
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot, entry_name
from elasticd.checkpoint.retention.deletion import apply_retention
from elasticd.checkpoint.retention.policy import Retention
from elasticd.checkpoint.retention.sweep import OLDER_THAN_S, SweepFolder, is_garbage, sweep
from tests.unit.checkpoint.meddling import Crash, Meddling
from tests.unit.checkpoint.stock_case import Maker

NOW = 1_000_000.0
OLD = NOW - OLDER_THAN_S - 1


def at(run: int, generation: int, step: int) -> Snapshot:
    return Snapshot(run=run, generation=generation, step=step)


RULING = LogState(
    run=2, generation=5, start_step=90, uid="u", job="j", last=at(2, 5, 100), floor_step=100
)


@pytest.mark.parametrize(
    ("snapshot", "newest_unix_s", "is_it"),
    [
        (at(2, 5, 95), OLD, True),  # The ruling generation committed a newer one.
        (at(2, 5, 100), OLD, True),  # A snapshot that is not kept, whatever the reason.
        (at(2, 5, 110), OLD, False),  # Not newer than a day, perhaps, but it may yet be committed.
        (at(2, 4, 500), OLD, True),  # Taken by a generation that was left behind.
        (at(1, 9, 500), OLD, True),
        (at(2, 6, 1), OLD, False),  # A generation that has not opened yet.
        (at(3, 1, 1), OLD, False),
        (at(2, 4, 50), NOW - 60, False),  # Young.
        (at(2, 4, 50), NOW + 60, False),  # The storage's clock is ahead.
        (at(2, 4, 50), 0.0, False),  # The storage does not say.
        (at(2, 5, 90), OLD, False),  # Needed.
    ],
)
def test_garbage_is_old_unneeded_and_too_late(
    snapshot: Snapshot, newest_unix_s: float, is_it: bool
) -> None:
    """All three."""
    found = SweepFolder(snapshot=snapshot, objects=1, nbytes=1, newest_unix_s=newest_unix_s)
    said = is_garbage(
        found,
        needed={at(2, 5, 90)},
        log_state=RULING,
        now_unix_s=NOW,
        older_than_s=OLDER_THAN_S,
    )
    assert said is is_it


def test_what_may_still_be_committed_is_no_garbage() -> None:
    """An older generation's, of a step that the present one went on from: a node that was slow, or
    whose storage was away for a day, brings it yet."""
    log_state = LogState(
        run=2, generation=5, start_step=90, uid="u", last=at(2, 3, 40), floor_step=40
    )
    for step, is_it in ((40, True), (41, False), (90, False), (91, True)):
        found = SweepFolder(snapshot=at(2, 4, step), objects=1, nbytes=1, newest_unix_s=OLD)
        said = is_garbage(
            found, needed=(), log_state=log_state, now_unix_s=NOW, older_than_s=OLDER_THAN_S
        )
        assert said is is_it is not may_commit(log_state, found.snapshot)


def test_a_run_without_a_checkpoint_has_no_garbage_of_its_own() -> None:
    """Its first upload may take longer than a day."""
    found = SweepFolder(snapshot=at(2, 5, 95), objects=1, nbytes=1, newest_unix_s=OLD)
    log_state = LogState(run=2, generation=5)
    assert not is_garbage(
        found, needed=(), log_state=log_state, now_unix_s=NOW, older_than_s=OLDER_THAN_S
    )


def tomorrow() -> float:
    return time.time() + 2 * OLDER_THAN_S


def test_an_upload_that_was_left_in_the_middle_is_swept(tmp_path: Path) -> None:
    """Not before its day is over; the checkpoints stay."""
    maker = Maker.of(tmp_path, steps=2)
    maker.put(25)
    maker.save(30)
    assert sweep(maker.bucket, maker.log).folders == ()
    swept = sweep(maker.bucket, CommitLog(maker.bucket), now=tomorrow)
    assert [found.snapshot.step for found in swept.folders] == [25]
    assert maker.folders() == [10, 20, 30] and maker.numbers() == [4, 3, 2]


def test_an_upload_in_which_one_object_is_young_is_left_alone(tmp_path: Path) -> None:
    """It is still going on, slowly."""
    maker = Maker.of(tmp_path, steps=1)
    snapshot, _ = maker.put(5)
    paths = sorted((tmp_path / snapshot.folder).iterdir())
    for path in paths[1:]:
        os.utime(path, (1, 1))
    assert sweep(maker.bucket, maker.log).folders == ()
    os.utime(paths[0], (1, 1))
    assert len(sweep(maker.bucket, maker.log).folders) == 1


def test_what_a_crashed_removal_left_is_swept(tmp_path: Path) -> None:
    """It died between its entry and its deletions."""
    maker = Maker.of(tmp_path, steps=4)

    def before(verb: str, name: str) -> None:
        if verb == "delete":
            raise Crash

    meddled = Meddling(maker.bucket, before)
    with pytest.raises(Crash):
        apply_retention(meddled, CommitLog(meddled), Retention(last=2))
    assert maker.folders() == [10, 20, 30, 40]
    swept = sweep(maker.bucket, maker.log, now=tomorrow)
    assert [found.snapshot.step for found in swept.folders] == [10, 20]
    assert maker.folders() == [30, 40]


def test_a_crashed_sweep_is_finished_by_the_next(tmp_path: Path) -> None:
    """Wherever in the middle of a folder it died."""
    maker = Maker.of(tmp_path, steps=2)
    maker.put(5)
    count = 0

    def before(verb: str, name: str) -> None:
        nonlocal count
        count += verb == "delete"
        if count == 3:
            raise Crash

    meddled = Meddling(maker.bucket, before)
    with pytest.raises(Crash):
        sweep(meddled, CommitLog(meddled), now=tomorrow)
    assert maker.folders() == [5, 10, 20]
    sweep(maker.bucket, maker.log, now=tomorrow)
    assert maker.folders() == [10, 20] and maker.numbers() == [3, 2]


def test_a_sweep_that_sees_only_a_part_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does see it judges by the whole folder."""
    monkeypatch.setattr("elasticd.checkpoint.retention.sweep.LIST_LIMIT", 1)
    maker = Maker.of(tmp_path, steps=1)
    swept = sweep(maker.bucket, maker.log, now=tomorrow)
    assert swept.is_cut_off and swept.folders == ()
    monkeypatch.undo()
    assert not sweep(maker.bucket, maker.log, now=tomorrow).is_cut_off


def test_a_dry_run_deletes_nothing(tmp_path: Path) -> None:
    """It tells the same."""
    maker = Maker.of(tmp_path, steps=2)
    maker.put(5)
    before = sorted(tmp_path.rglob("*"))
    swept = sweep(maker.bucket, maker.log, is_dry_run=True, now=tomorrow)
    assert len(swept.folders) == 1 and swept.folders[0].nbytes > 1000
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_being_read_is_not_swept(tmp_path: Path) -> None:
    """It was given up after its reader had come; the objects are left for later."""
    maker = Maker.of(tmp_path, steps=4)

    def before(verb: str, name: str) -> None:
        if verb == "replace":
            text = json.dumps({"number": 2, "until_unix_s": tomorrow()}).encode()
            maker.bucket.replace("leases/r.json", text)

    meddled = Meddling(maker.bucket, before)
    assert apply_retention(meddled, CommitLog(meddled), Retention(last=2)).left == (2,)
    assert sweep(maker.bucket, maker.log, now=tomorrow).folders == ()
    later = sweep(maker.bucket, maker.log, now=lambda: tomorrow() + GRACE_S + 60)
    assert [found.snapshot.step for found in later.folders] == [10]
    assert later.strays == ("leases/r.json",)


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """Only names that we give are ours to delete."""
    maker = Maker.of(tmp_path, steps=1)
    foreign = [tmp_path / "steps" / "notes" / "a.txt", tmp_path / "steps" / "b", tmp_path / "c"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        os.utime(path, (1, 1))
    temporary = tmp_path / "commits" / f".{Path(entry_name(2)).name}.0a1b2c3d.tmp"
    temporary.write_text("")
    os.utime(temporary, (1, 1))
    swept = sweep(maker.bucket, maker.log, now=tomorrow)
    assert swept.folders == () and len(swept.strays) == 1
    assert all(path.exists() for path in foreign) and not temporary.exists()


@pytest.mark.parametrize("number", [2, 4])
def test_nothing_is_swept_while_it_is_not_known_what_is_kept(tmp_path: Path, number: int) -> None:
    """An entry of the log is damaged: a kept one, or the newest."""
    maker = Maker.of(tmp_path, steps=3)
    maker.put(5)
    (tmp_path / entry_name(number)).write_bytes(b"{")
    with pytest.raises(Damaged, match=f"entry {number} of the log"):
        sweep(maker.bucket, CommitLog(maker.bucket), now=tomorrow)
    assert maker.folders() == [5, 10, 20, 30]

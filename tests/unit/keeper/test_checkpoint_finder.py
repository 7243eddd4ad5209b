"""What is restored: the newest good one, the same on all ranks, and verified."""

import json
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from elasticd.checkpoint.commit.committer import Committer
from elasticd.checkpoint.commit.fetch import extents
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.commit.read_lease import leased
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot, entry_name
from elasticd.checkpoint.format.manifest import Manifest
from elasticd.checkpoint.format.piece_rows import all_rows
from elasticd.checkpoint.retention.deletion import remove
from elasticd.errors import Fenced, Refused, Unavailable
from elasticd.keeper import checkpoint_finder
from elasticd.keeper.checkpoint_finder import CheckpointFinder
from tests.fixtures.cluster import until
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.checkpoint.stock_case import JOB, UID, Maker
from tests.unit.keeper.site import PATIENCE_S, memfds


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_finder, "POLL_S", 0.01)
    monkeypatch.setattr(checkpoint_finder, "SHARED_S", 0.05)


def finder_of(maker: Maker, *, uid: str = UID, job: str = JOB) -> CheckpointFinder:
    committer = Committer(bucket=maker.bucket, log=CommitLog(maker.bucket), uid=uid, job=job)
    return CheckpointFinder(maker.bucket, committer, parallel=2)


def spoil(folder: Path, name: str) -> None:
    path = folder / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def step_of(snapshot: Snapshot | None) -> int:
    assert snapshot is not None
    return snapshot.step


def manifest_name(step: int) -> str:
    return Snapshot(run=1, generation=1, step=step).manifest


# --- find ---------------------------------------------------------------------------------------


def test_newest_is_found_or_none(tmp_path: Path) -> None:
    """And the newest below a number, which a reader asks for when a part of it was damaged."""
    assert finder_of(Maker(f"file://{tmp_path / 'empty'}")).find(0).number == 0
    finder = finder_of(Maker.of(tmp_path / "some", steps=3))
    assert [finder.find(below).number for below in (0, 4, 3, 2)] == [4, 3, 2, 0]
    assert step_of(finder.find(0).snapshot) == 30
    assert finder.find(0).notes == ()


def test_damaged_ones_are_passed_over_and_named(tmp_path: Path) -> None:
    """A manifest with a flipped bit, one that is gone; the one before is taken."""
    finder = finder_of(Maker.of(tmp_path, steps=3))
    spoil(tmp_path, manifest_name(30))
    found = finder.find(0)
    assert step_of(found.snapshot) == 20
    (note,) = found.notes
    assert note.startswith("The checkpoint of step 30 (run 1, generation 1) is damaged: ")
    (tmp_path / manifest_name(20)).unlink()
    found = finder_of(Maker(f"file://{tmp_path}")).find(0)
    assert step_of(found.snapshot) == 10
    assert len(found.notes) == 2 and "is gone" in found.notes[1]
    spoil(tmp_path, manifest_name(10))
    found = finder_of(Maker(f"file://{tmp_path}")).find(0)
    assert found.number == 0 and len(found.notes) == 3


def test_another_jobs_checkpoints_are_refused(tmp_path: Path) -> None:
    """Found or joined: nobody goes on from a state that is not his."""
    maker = Maker.of(tmp_path, steps=1)
    stranger = finder_of(maker, uid="other", job="other")
    with pytest.raises(Refused, match="of the job digits, not of other"):
        stranger.find(0)
    with pytest.raises(Refused):
        stranger.join(1, PATIENCE_S)
    with pytest.raises(Refused):
        stranger.open(1, 0)


# --- join ---------------------------------------------------------------------------------------


def test_join_waits_for_rank_0_and_tells_its_checkpoint(tmp_path: Path) -> None:
    """Not the newest there is, but the one of the step that the generation went on from."""
    maker = Maker.of(tmp_path, steps=3)
    finder = finder_of(maker)
    joined = []
    waiting = Thread(target=lambda: joined.append(finder.join(2, PATIENCE_S)))
    waiting.start()
    assert finder.open(2, 20) == 1
    waiting.join(PATIENCE_S)
    assert [(each.run, each.number) for each in joined] == [(1, 3)]
    maker.generation = 2
    maker.save(25)
    assert finder.join(2, PATIENCE_S).number == 3, "a rank may be much later"


def test_join_of_a_generation_that_began_anew_tells_none(tmp_path: Path) -> None:
    """Though there are checkpoints: what rank 0 could not read the others must not."""
    finder = finder_of(Maker.of(tmp_path, steps=2))
    assert finder.join(1, PATIENCE_S).number == 0
    finder.open(2, 0)
    assert finder.join(2, PATIENCE_S).number == 0


def test_join_finds_a_checkpoint_of_step_0_however_often_the_job_was_restarted(
    tmp_path: Path,
) -> None:
    """Other ranks would begin anew, where rank 0 goes on from what was saved."""
    maker = Maker.of(tmp_path)
    entry = maker.save(0)
    finder = finder_of(maker)
    for generation in (2, 3, 4):
        finder.open(generation, 0)
        assert finder.join(generation, PATIENCE_S).number == entry.number


def test_join_takes_the_newest_of_two_checkpoints_of_a_step(tmp_path: Path) -> None:
    """Two runs have saved it; rank 0 took the later one."""
    Maker.of(tmp_path, steps=2)
    later = Maker(f"file://{tmp_path}", uid="second")
    later.open(1, 10)
    assert later.run == 2
    assert finder_of(later, uid="second").join(1, PATIENCE_S).number == 2
    later.save(20)
    later.open(2, 20)
    assert finder_of(later, uid="second").join(2, PATIENCE_S).number == 5


def test_join_takes_what_rank_0_took_of_two_checkpoints_of_a_step(tmp_path: Path) -> None:
    """A generation went back behind a checkpoint and saved its step once more. The newer one is
    damaged where only rank 0 reads, so the others could load it, or a person gave it up."""
    maker = Maker.of(tmp_path, steps=2)
    maker.open(2, 10)
    newer = maker.save(20)
    assert newer.number == 5
    spoil(tmp_path, newer.snapshot.manifest)
    finder = finder_of(maker)
    loaded = finder.find(0)
    assert (loaded.number, step_of(loaded.snapshot)) == (3, 20)
    finder.open(3, 20, loaded.number)
    assert finder.join(3, PATIENCE_S).number == 3


def test_join_begins_anew_with_rank_0_whatever_was_saved_at_step_0(tmp_path: Path) -> None:
    """A person gave it up: rank 0 finds none, and its entry is still in the log."""
    maker = Maker.of(tmp_path)
    remove(maker.bucket, CommitLog(maker.bucket), [maker.save(0).number], is_forced=True)
    finder = finder_of(maker)
    assert finder.find(0).number == 0
    finder.open(2, 0, 0)
    assert finder.join(2, PATIENCE_S).number == 0


def test_join_after_a_later_generation_or_run_is_fenced(tmp_path: Path) -> None:
    """Whoever is so late is of no world any more, and is told at once."""
    maker = Maker.of(tmp_path, steps=1)
    finder = finder_of(maker)
    maker.open(5, 10)
    with pytest.raises(Fenced, match="4 is over, 5 began"):
        finder.join(4, PATIENCE_S)
    Maker(f"file://{tmp_path}", uid="later").open(1, 10)
    for generation in (4, 5, 6):
        with pytest.raises(Fenced, match="later run of digits"):
            finder.join(generation, PATIENCE_S)


def test_join_without_rank_0_ends_in_its_time(tmp_path: Path) -> None:
    """With a sentence that says what to call."""
    finder = finder_of(Maker.of(tmp_path, steps=1))
    with pytest.raises(Unavailable, match="on all ranks"):
        finder.join(2, 0.05)


def test_join_waits_as_long_as_somebody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 reads for much longer than the others would wait for a sign: each renewal of its
    lease is one. Where nothing is renewed they are told."""
    maker = Maker.of(tmp_path, steps=2)
    finder, first = finder_of(maker), finder_of(maker)
    now_s, renewals = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now_s, renewals
        now_s += 50.0
        if now_s < 3000.0:
            renewals += 1
            said = json.dumps({"number": 3, "until_unix_s": renewals})
            maker.bucket.replace("leases/0123.json", said.encode())
        elif now_s == 3000.0:
            first.open(2, 20)

    clock = SimpleNamespace(monotonic=lambda: now_s, sleep=sleep)
    monkeypatch.setattr(checkpoint_finder, "time", clock)
    assert finder.join(2, 300.0).number == 3
    assert now_s == 3000.0
    with pytest.raises(Unavailable, match="in 300 s, and nobody reads a checkpoint"):
        finder.join(3, 300.0)
    assert now_s < 3500.0


def test_join_does_not_begin_anew_where_rank_0_went_on(tmp_path: Path) -> None:
    """The entry of the checkpoint was damaged in between: ranks with two states are worse than an
    error."""
    maker = Maker.of(tmp_path, steps=2)
    finder_of(maker).open(2, 20)
    spoil(tmp_path, entry_name(3))
    with pytest.raises(Damaged, match="step 20"):
        finder_of(maker).join(2, PATIENCE_S)


# --- fetch --------------------------------------------------------------------------------------


def test_manifest_is_given_as_it_was_committed(tmp_path: Path) -> None:
    """Text in memory that a worker maps."""
    maker = Maker.of(tmp_path, steps=1)
    memory = finder_of(maker).manifest(2)
    assert Manifest.from_json(bytes(memory.view)).header.snapshot.step == 10


def test_fetched_pieces_are_verified_and_a_lease_is_held(tmp_path: Path) -> None:
    """While any part is read nobody deletes the checkpoint; afterwards anybody may."""
    maker = Maker.of(tmp_path, steps=3)
    seen = []

    def before(verb: str, name: str) -> None:
        if verb == "read_into":
            seen.append(leased(maker.bucket))

    good = finder_of(maker)
    maker.bucket = Meddling(maker.bucket, before)
    finder = finder_of(maker)
    manifest = Manifest.from_json(bytes(finder.manifest(3).view))
    pieces = tuple(all_rows(index, piece) for index, piece in enumerate(manifest.pieces))
    memory = finder.fetch(3, pieces)
    assert memory.size == extents(manifest, manifest.pieces)[2]
    assert set(seen) == {frozenset({3})}
    assert leased(maker.bucket) == frozenset()
    spoil(tmp_path, f"{manifest.header.snapshot.folder}/{manifest.parts[0].name}")
    with pytest.raises(Damaged, match="checksum of its block 0 differs"):
        finder_of(maker).fetch(3, pieces)
    good.manifest(2)
    remove(maker.bucket, CommitLog(maker.bucket), [2])
    with pytest.raises(Damaged, match=r"given up|gone"):
        good.fetch(2, pieces)
    assert leased(maker.bucket) == frozenset()


def test_damage_that_another_rank_finds_is_found_at_the_next_start(tmp_path: Path) -> None:
    """Rank 0 reads no part, and would take the newest again and again. What is not damaged any
    more is taken, whatever was said."""
    maker = Maker.of(tmp_path, steps=2)
    finder = finder_of(maker)
    manifest = Manifest.from_json(bytes(finder.manifest(3).view))
    pieces = tuple(all_rows(index, piece) for index, piece in enumerate(manifest.pieces))
    name = f"{manifest.header.snapshot.folder}/{manifest.parts[-1].name}"
    spoil(tmp_path, name)
    assert finder_of(maker).find(0).number == 3
    with pytest.raises(Damaged):
        finder.fetch(3, pieces)
    found = finder_of(maker).find(0)
    assert found.number == 2
    why = f"{name} is not as it was written: the checksum of its block 0 differs."
    assert found.notes == (f"The checkpoint of step 20 (run 1, generation 1) is damaged: {why}",)
    spoil(tmp_path, name)
    assert finder_of(maker).find(0).number == 3


def test_damage_is_raised_though_it_cannot_be_marked(tmp_path: Path) -> None:
    maker = Maker.of(tmp_path, steps=1)
    manifest = Manifest.from_json(bytes(finder_of(maker).manifest(2).view))
    spoil(tmp_path, f"{manifest.header.snapshot.folder}/{manifest.parts[0].name}")

    def before(verb: str, name: str) -> None:
        if verb == "replace" and name.endswith("damage.json"):
            raise Refused("no permission")

    maker.bucket = Meddling(maker.bucket, before)
    pieces = tuple(all_rows(index, piece) for index, piece in enumerate(manifest.pieces))
    with pytest.raises(Damaged, match="checksum of its block 0 differs"):
        finder_of(maker).fetch(2, pieces)


def test_fetched_memory_is_shared_for_a_moment_and_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks of one node that want the same read it once; nothing stays of it."""
    maker = Maker.of(tmp_path, steps=1)
    finder = finder_of(maker)
    before = memfds()
    first = finder._manifest(2).pieces[0]
    rows = (all_rows(0, first),)
    with monkeypatch.context() as long:
        long.setattr(checkpoint_finder, "SHARED_S", PATIENCE_S)
        one, other, another = (finder.fetch(2, each) for each in (rows, rows, ()))
    assert one is other is not another
    del one, other, another
    finder.close()
    finder = finder_of(maker)
    finder.fetch(2, rows)
    until(lambda: memfds() <= before, memfds)
    with pytest.raises(Damaged):
        finder.fetch(1, rows)
    until(lambda: memfds() <= before, memfds)
    finder.close()
    finder.close()

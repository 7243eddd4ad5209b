"""Uploads and commits of one keeper, with a storage that is slow, fails or refuses."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.errors import Refused, Unavailable
from elasticd.keeper import saver as saver_module
from elasticd.keeper.save.snapshot_save import SnapshotSave
from tests.fixtures.cluster import until
from tests.unit.checkpoint.meddling import Meddling
from tests.unit.keeper.site import (
    PATIENCE_S,
    UPLOAD_S,
    Gate,
    Node,
    a_plan,
    a_snapshot,
    committed,
)

MADE = a_snapshot()
FIRST, SECOND = a_plan(0, 2), a_plan(1, 2)


def ended(node: Node, step: int = 10, generation: int = 1) -> tuple[CommitOutcome | None, str]:
    job = node.saver.wait(a_snapshot(step, generation), PATIENCE_S)
    assert job is not None
    return job.outcome, job.why


def opened(node: Node, generation: int = 1, step: int = 0) -> Node:
    node.committer.open(generation, step)
    return node


def wait_for_others(node: Node, snapshot: Snapshot) -> None:
    """Wait until all of the snapshot that is here is in the storage."""
    job = node.saver._jobs[snapshot]
    until(lambda: job.missing_s is not None, lambda: job.stage)


# --- one node -----------------------------------------------------------------------------------


def test_share_that_is_whole_becomes_a_checkpoint(tmp_path: Path) -> None:
    """With the bytes that were in memory; whoever cleans up is told once."""
    node = opened(Node(FolderBucket(str(tmp_path))))
    assert node.saver.durable_step == -1 and not node.saver.is_busy
    node.take(MADE, a_plan())
    assert ended(node) == (CommitOutcome.COMMITTED, "")
    assert [each.snapshot for each in committed(node.bucket)] == [MADE]
    assert node.saver.durable_step == 10
    node.saver.wait_idle(PATIENCE_S)
    until(lambda: node.commits == 1, lambda: node.commits)
    assert node.saver.take_notes() == ()


def test_worker_that_is_later_is_waited_for(tmp_path: Path) -> None:
    """Two workers of one node: the first's share is there before the second's is whole."""
    gate = Gate("read", "00001-0.json")
    node = opened(Node(gate.over(tmp_path)))
    node.take(MADE, FIRST)
    gate.wait_reached()
    node.take(MADE, SECOND, worker=2)
    gate.opened.set()
    assert ended(node) == (CommitOutcome.COMMITTED, "")


def test_busy_until_durable_however_slow_the_storage_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the upload, at the fragment and at the commit: nobody else is missing, so it is not
    stuck."""
    monkeypatch.setattr(saver_module, "STUCK_S", 0.0)
    for step, end in enumerate((".bin", "00000-0.json", "manifest.json"), start=1):
        gate = Gate("create", end)
        node = opened(Node(gate.over(tmp_path)))
        node.take(a_snapshot(step), a_plan())
        gate.wait_reached()
        assert node.saver.is_busy
        assert node.saver.wait(a_snapshot(step), 0.0) is None
        gate.opened.set()
        assert ended(node, step) == (CommitOutcome.COMMITTED, "")
        assert not node.saver.is_busy


def test_nothing_is_durable_before_something_was_read_back(tmp_path: Path) -> None:
    """A storage that keeps no bytes is found out with the first checkpoint, not with the first
    restore; what has been read once is believed from then on."""
    is_lost = True
    read: list[str] = []

    class Forgetful(FolderBucket):
        def read_into(self, name: str, start: int, place: memoryview) -> int:
            read.append(name)
            count = super().read_into(name, start, place)
            place[:count] = bytes(count) if is_lost else place[:count]
            return count

    node = opened(Node(Forgetful(str(tmp_path))))
    node.take(MADE, a_plan())
    assert ended(node)[0] is CommitOutcome.TOO_LATE
    assert list(CommitLog(node.bucket).checkpoints()) == [] and node.saver.durable_step == -1
    (note,) = node.saver.take_notes()
    assert "cannot be read back" in note and "the checksum of its block 0 differs" in note
    is_lost = False
    for step in (20, 30):
        read.clear()
        node.take(a_snapshot(step), a_plan())
        assert ended(node, step) == (CommitOutcome.COMMITTED, "")
        assert len(read) == (1 if step == 20 else 0)


def test_storage_that_fails_or_refuses_is_told_once(tmp_path: Path) -> None:
    """A sentence each, with the step, or the one that says what to permit; then it works again."""
    raised: list[Exception] = []

    def before(verb: str, name: str) -> None:
        if raised and name.endswith(".bin"):
            raise raised[0]

    node = opened(Node(Meddling(FolderBucket(str(tmp_path)), before)))
    cases = (
        (Unavailable("The disk is gone."), "The checkpoint of step 1 could not be saved: The disk"),
        (Refused("Permit it."), "Permit it."),
        (ZeroDivisionError("oh"), "of step 3 could not be saved: ZeroDivisionError: oh"),
    )
    for step, (error, said) in enumerate(cases, start=1):
        raised[:] = [error]
        node.take(a_snapshot(step), a_plan())
        outcome, why = ended(node, step)
        node.saver.wait_idle(PATIENCE_S)
        assert outcome in (None, CommitOutcome.TOO_LATE) and str(error) in why
        (note,) = node.saver.take_notes()
        assert said in note
        assert node.saver.take_notes() == ()
    raised.clear()
    node.take(a_snapshot(4), a_plan())
    assert ended(node, 4) == (CommitOutcome.COMMITTED, "")


def test_same_trouble_again_is_no_other_note(tmp_path: Path) -> None:
    """While nobody asks; and the notes that wait are bounded."""

    def before(verb: str, name: str) -> None:
        if name.endswith(".bin"):
            raise Refused("Permit it.") if name < "steps/000000000003" else Unavailable("It fails.")

    node = opened(Node(Meddling(FolderBucket(str(tmp_path)), before)))
    for step in range(1, 33):
        node.take(a_snapshot(step), a_plan())
        ended(node, step)
        node.saver.wait_idle(PATIENCE_S)
        if step == 2:
            assert node.saver.take_notes() == ("Permit it.",)
    assert len(node.saver.take_notes()) == 21


def test_memory_of_a_snapshot_that_was_given_up_is_not_read(tmp_path: Path) -> None:
    """Its first part is on the way when the buffer is given to the next; the others stay unread."""
    gate = Gate("create", ".bin")
    node = opened(Node(gate.over(tmp_path), parallel=1))
    plan = a_plan(parts=4)
    node.take(a_snapshot(1), plan)
    gate.wait_reached()
    node.take(a_snapshot(2), plan, is_new=False)
    node.share_memory.claim(1, plan.id)
    gate.opened.set()
    outcome, why = ended(node, 1)
    assert outcome in (None, CommitOutcome.TOO_LATE) and "newer snapshot" in why
    assert ended(node, 2) == (CommitOutcome.COMMITTED, "")
    assert len([name for name in gate.names if name.startswith(a_snapshot(1).folder)]) == 1
    assert node.saver.take_notes() == (), "that is no trouble"


# --- its end ------------------------------------------------------------------------------------


def test_close_lets_end_what_is_under_way(tmp_path: Path) -> None:
    """It returns when that is durable."""
    gate = Gate("create", ".bin")
    node = opened(Node(gate.over(tmp_path)))
    node.take(MADE, a_plan())
    gate.wait_reached()
    with ThreadPoolExecutor(1) as thread:
        is_saved = thread.submit(node.saver.close, PATIENCE_S)
        gate.opened.set()
        assert is_saved.result(PATIENCE_S)
    assert node.saver.durable_step == 10


def test_how_far_an_upload_is_can_be_asked(tmp_path: Path) -> None:
    """In bytes of the parts that stand in the bucket; nothing is left when it is durable."""
    gate = Gate("create", "-00001.bin")
    node = opened(Node(gate.over(tmp_path)))
    assert node.saver.progress == (0, 0)
    node.take(MADE, a_plan(parts=4))
    gate.wait_reached()
    until(lambda: node.saver.progress == (75, 100), lambda: node.saver.progress)
    gate.opened.set()
    assert ended(node) == (CommitOutcome.COMMITTED, "")
    assert node.saver.progress == (0, 0)


def test_close_does_not_wait_for_parts_of_nodes_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left to do here; that the checkpoint is not saved is said."""
    monkeypatch.setattr(saver_module, "LOST_S", 0.0)
    node = opened(Node(FolderBucket(str(tmp_path))))
    node.take(MADE, FIRST)
    assert not node.saver.close(PATIENCE_S)


def test_close_gives_up_a_request_that_hangs(tmp_path: Path) -> None:
    """Within its limit; what comes of the request afterwards is not named any more."""
    gate = Gate("create", ".bin")
    node = opened(Node(gate.over(tmp_path)))
    node.take(MADE, a_plan())
    gate.wait_reached()
    with ThreadPoolExecutor(1) as thread:
        assert not thread.submit(node.saver.close, 0.05).result(PATIENCE_S)
    gate.opened.set()
    ended(node)
    assert committed(node.bucket) == []
    assert not list(tmp_path.glob("steps/*/*.json"))


# --- when a share is missing --------------------------------------------------------------------


def test_missing_share_makes_it_stuck_but_not_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer one need not wait for it; if the share comes it is committed after all."""
    monkeypatch.setattr(saver_module, "STUCK_S", 0.0)
    one, other = opened(Node(FolderBucket(str(tmp_path)))), Node(FolderBucket(str(tmp_path)))
    one.take(MADE, FIRST)
    until(lambda: not one.saver.is_busy, lambda: "it waits")
    assert one.saver.wait(MADE, 0.0) is None
    other.take(MADE, SECOND)
    assert ended(one) == (CommitOutcome.COMMITTED, "")


def test_share_that_is_missing_when_its_generation_is_over_holds_up_no_newer_snapshot(
    tmp_path: Path,
) -> None:
    """Its worker was killed before the share was whole; if another keeper has it, it still counts.

    That holds for one snapshot at a time, so that a slow storage never has more and more to take.
    """
    one, other = opened(Node(FolderBucket(str(tmp_path)))), Node(FolderBucket(str(tmp_path)))
    one.take(MADE, FIRST)
    wait_for_others(one, MADE)
    assert one.saver.is_busy
    one.saver.open(2, 10, 1)
    assert not one.saver.is_busy
    one.take(a_snapshot(20, 2), FIRST)
    assert one.saver.is_busy
    wait_for_others(one, a_snapshot(20, 2))
    one.saver.open(3, 20, 1)
    assert one.saver.is_busy
    other.take(MADE, SECOND)
    assert ended(one) == (CommitOutcome.COMMITTED, "")
    assert not one.saver.is_busy


def test_share_that_never_comes_is_given_up_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it for ever."""
    monkeypatch.setattr(saver_module, "GIVE_UP_S", 0.0)
    node = opened(Node(FolderBucket(str(tmp_path))))
    node.take(MADE, FIRST)
    assert ended(node)[1] == "A part of it never came."
    node.saver.wait_idle(PATIENCE_S)
    (note,) = node.saver.take_notes()
    assert note == "The checkpoint of step 10 could not be saved: A part of it never came."
    assert not node.saver.is_busy


@pytest.mark.parametrize("newest", [1, 2], ids=["its generation", "a newer one"])
def test_share_that_does_not_come_for_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    """As where a script saves on rank 0 alone: long before it is given up. Once a newer generation
    began, the part was lost, and nobody has to do anything."""
    node = opened(Node(FolderBucket(str(tmp_path))))
    node.take(MADE, FIRST)
    wait_for_others(node, MADE)
    node.saver.open(newest, 10, 1)
    assert node.saver.take_notes() == ()
    looks: list[float] = []

    def is_missing(job: SnapshotSave, now_s: float, least_s: float) -> bool:
        looks.append(least_s)
        return least_s == saver_module.STUCK_S

    monkeypatch.setattr(saver_module, "LAST_PAUSE_S", 0.05)
    monkeypatch.setattr(SnapshotSave, "is_missing", is_missing)
    until(lambda: len(looks) > 6, lambda: looks)
    said = (
        "The checkpoint of step 10 is not whole long after this node's part of it was saved: a "
        "rank did not call save for this step, or is slow or gone."
    )
    assert node.saver.take_notes() == ((said,) if newest == 1 else ())


def test_slow_upload_is_no_reason_to_give_up_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this node took, others may take too: one that was ready earlier waits for them."""
    monkeypatch.setattr(saver_module, "GIVE_UP_S", 0.0)
    gate = Gate("create", ".bin")
    looks: list[str] = []

    def before(verb: str, name: str) -> None:
        gate(verb, name)
        if verb == "read" and name.endswith("00001-0.json"):
            looks.append(name)

    one = opened(Node(Meddling(FolderBucket(str(tmp_path)), before)))
    other = Node(FolderBucket(str(tmp_path)))
    one.take(MADE, FIRST)
    gate.wait_reached()
    assert not Event().wait(UPLOAD_S), "so long its upload takes"
    gate.opened.set()
    until(lambda: len(looks) >= 3, lambda: looks)
    other.take(MADE, SECOND)
    assert ended(one) == (CommitOutcome.COMMITTED, "")


def test_wait_tells_what_is_unknown_from_what_takes_long(tmp_path: Path) -> None:
    """One that was lost with an earlier keeper would be waited for in vain."""
    node = opened(Node(FolderBucket(str(tmp_path))))
    assert node.saver.wait(MADE, PATIENCE_S) is None
    assert not node.saver.is_known(MADE)
    node.take(MADE, FIRST)
    assert node.saver.is_known(MADE)
    assert node.saver.wait(MADE, 0.0) is None
    node.saver.close(0.0)


# --- generations --------------------------------------------------------------------------------


def test_opening_is_written_behind_the_workers_back(tmp_path: Path) -> None:
    """Where the run is known nobody waits for the storage; the newest beginning is written."""
    gate = Gate("create", "000000000002.json")
    gate.opened.set()
    node = opened(Node(gate.over(tmp_path)))
    assert node.saver.open(2, 5, 0) == 0, "the run is not known yet"
    node.saver.use_run(1)
    gate.opened.clear()
    assert node.saver.open(2, 5, 0) == 1
    gate.wait_reached()
    assert node.saver.open(3, 7, 1) == 1
    log = CommitLog(FolderBucket(str(tmp_path)))
    assert log.state().generation == 1
    gate.opened.set()
    until(lambda: log.state().generation == 3, lambda: log.state())
    assert log.state().start_step == 7


def test_opening_that_came_too_late_harms_nobody(tmp_path: Path) -> None:
    """A newer one stands there; what is saved now is judged by that."""
    node = opened(Node(FolderBucket(str(tmp_path))), generation=5, step=50)
    node.saver.use_run(1)
    node.saver.open(4, 60, 1)
    node.take(a_snapshot(60, 4), a_plan())
    assert ended(node, 60, 4)[0] is CommitOutcome.TOO_LATE
    assert CommitLog(node.bucket).state().generation == 5

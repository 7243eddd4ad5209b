"""Several keepers over one bucket: all shares or none, stand-ins, and generations that are over."""

import time
from pathlib import Path
from threading import Barrier, Thread

import pytest

from elasticd.checkpoint.commit.committer import CommitOutcome
from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.format.layout import fragment_name
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.keeper import saver as saver_module
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
SPARE = a_plan(1, 2, holder=1)
GOOD = (CommitOutcome.COMMITTED, CommitOutcome.ALREADY)


def outcome(node: Node, step: int = 10, generation: int = 1) -> CommitOutcome | None:
    job = node.saver.wait(a_snapshot(step, generation), PATIENCE_S)
    assert job is not None
    node.saver.wait_idle(PATIENCE_S)
    return job.outcome


def two_nodes(folder: Path) -> tuple[Node, Node]:
    one, other = Node(FolderBucket(str(folder))), Node(FolderBucket(str(folder)))
    one.committer.open(1, 0)
    return one, other


@pytest.fixture
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver_module, "TURN_S", 0.05)


@pytest.mark.parametrize("is_first_earlier", [True, False])
def test_checkpoint_counts_only_with_all_shares(tmp_path: Path, is_first_earlier: bool) -> None:
    """Whichever node is later; until then the log has nothing, and both are busy."""
    gate = Gate("create", ".bin")
    early = Node(FolderBucket(str(tmp_path)))
    late = Node(gate.over(tmp_path))
    early.committer.open(1, 0)
    plans = (FIRST, SECOND) if is_first_earlier else (SECOND, FIRST)
    early.take(MADE, plans[0])
    late.take(MADE, plans[1])
    gate.wait_reached()
    name = fragment_name(MADE, plans[0].share, 0)
    until(lambda: (tmp_path / name).exists(), lambda: "no fragment")
    assert committed(early.bucket) == []
    assert early.saver.is_busy and late.saver.is_busy
    gate.opened.set()
    assert {outcome(early), outcome(late)} == set(GOOD)
    assert [each.snapshot for each in committed(early.bucket)] == [MADE]
    until(lambda: early.commits + late.commits == 1, lambda: "nobody is told")
    assert early.saver.durable_step == late.saver.durable_step == 10


@pytest.mark.usefixtures("_prompt")
def test_second_holder_brings_what_the_first_never_uploads(tmp_path: Path) -> None:
    """Its node is gone; the copy that another has makes the checkpoint whole."""
    node, _ = two_nodes(tmp_path)
    node.take(MADE, FIRST, SPARE)
    assert outcome(node) is CommitOutcome.COMMITTED
    (entry,) = committed(node.bucket)
    assert (tmp_path / fragment_name(entry.snapshot, 1, 1)).exists()
    assert not (tmp_path / fragment_name(entry.snapshot, 1, 0)).exists()


@pytest.mark.usefixtures("_prompt")
def test_first_share_is_stood_in_for_too(tmp_path: Path) -> None:
    """The node that would commit is gone: the next in line does."""
    node, _ = two_nodes(tmp_path)
    node.take(MADE, SECOND, a_plan(0, 2, holder=1))
    assert outcome(node) is CommitOutcome.COMMITTED
    assert len(committed(node.bucket)) == 1


@pytest.mark.usefixtures("_prompt")
def test_second_copy_is_left_where_the_first_was_uploaded(tmp_path: Path) -> None:
    """Bytes are not sent twice, though nobody has committed yet."""
    three = [a_plan(index, 3) for index in range(3)]
    one, other = two_nodes(tmp_path)
    other.take(MADE, three[1])
    name = fragment_name(MADE, 1, 0)
    until(lambda: (tmp_path / name).exists(), lambda: "no fragment")
    gate = Gate("read", "00002-1.json")
    one.bucket = gate.over(tmp_path)
    one = Node(one.bucket)
    one.take(MADE, three[0], a_plan(1, 3, holder=1))
    gate.opened.set()
    until(lambda: len(gate.names) > 3, lambda: gate.names)
    other.take(MADE, three[2], worker=2)
    assert {outcome(one), outcome(other)} <= set(GOOD)
    assert not (tmp_path / fragment_name(MADE, 1, 1)).exists()


def test_second_holder_gives_the_first_as_long_as_it_took_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow storage does not make every share be sent twice."""
    monkeypatch.setattr(saver_module, "TURN_S", 0.0)
    gate = Gate("create", ".bin")
    one, other = Node(gate.over(tmp_path)), Node(FolderBucket(str(tmp_path)))
    other.committer.open(1, 0)
    one.take(MADE, FIRST, SPARE)
    gate.wait_reached()
    assert not gate.opened.wait(UPLOAD_S), "so long its upload takes"
    gate.opened.set()
    until(lambda: (tmp_path / fragment_name(MADE, 0, 0)).exists(), lambda: "no fragment")
    other.take(MADE, SECOND)
    assert {outcome(one), outcome(other)} <= set(GOOD)
    assert not (tmp_path / fragment_name(MADE, 1, 1)).exists()


def test_several_who_commit_at_once_make_one_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have gathered every share before one of them writes the manifest."""
    monkeypatch.setattr(saver_module, "TURN_S", 0.0)
    count = 4
    barrier = Barrier(count)

    def before(verb: str, name: str) -> None:
        if (verb, name) == ("create", MADE.manifest):
            barrier.wait(PATIENCE_S)

    nodes = [Node(Meddling(FolderBucket(str(tmp_path)), before)) for _ in range(count)]
    nodes[0].committer.open(1, 0)
    for index, node in enumerate(nodes):
        node.take(MADE, a_plan(index, count))
    found = sorted(str(outcome(node)) for node in nodes)
    assert found == ["already"] * (count - 1) + ["committed"]
    assert len(committed(nodes[0].bucket)) == 1
    until(lambda: sum(node.commits for node in nodes) == 1, lambda: "nobody is told")


def test_third_snapshot_waits_while_another_node_still_uploads_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be written over the first, and so would each after it: nothing became durable."""
    monkeypatch.setattr(saver_module, "STUCK_S", 0.0)
    gate = Gate("create", ".bin")
    one, other = Node(FolderBucket(str(tmp_path))), Node(gate.over(tmp_path))
    one.saver.open(1, 0, 1)
    for node, plan in ((one, FIRST), (other, SECOND)):
        node.share_memory.plan(1, [plan])
    for step in (10, 20):
        until(lambda: not one.saver.is_busy, lambda: "it waits")
        one.take(a_snapshot(step), FIRST, is_new=False)
        other.take(a_snapshot(step), SECOND, is_new=False)
        job = one.saver._jobs[a_snapshot(step)]
        until(lambda: job.is_missing(time.monotonic(), 0.0), lambda: job.stage)  # noqa: B023
    assert one.saver.is_busy
    gate.opened.set()
    assert outcome(one, 20) in GOOD
    assert outcome(one, 10) is not None
    assert not one.saver.is_busy


# --- generations that are over ------------------------------------------------------------------


@pytest.mark.parametrize(("start_step", "is_durable"), [(9, False), (10, True), (11, True)])
def test_old_generations_snapshot_is_durable_only_if_the_newest_went_on_from_it(
    tmp_path: Path, start_step: int, is_durable: bool
) -> None:
    """The world changes again and again while the upload is under way, and workers plan anew."""
    gate = Gate("create", ".bin")
    node, other = Node(gate.over(tmp_path)), Node(FolderBucket(str(tmp_path)))
    other.committer.open(1, 0)
    node.take(MADE, a_plan())
    gate.wait_reached()
    for generation in range(2, 12):
        other.committer.open(generation, start_step)
        node.share_memory.plan(1, [a_plan()])
        node.share_memory.claim(1, a_plan().id)
    node.share_memory.leave(1)
    gate.opened.set()
    found = outcome(node)
    assert found is (CommitOutcome.COMMITTED if is_durable else CommitOutcome.TOO_LATE)
    assert [each.snapshot for each in committed(other.bucket)] == [MADE] * is_durable
    assert node.saver.take_notes() == ()


@pytest.mark.parametrize(
    ("saved", "last_generation"), [(None, 2), ((9, 1), 2), ((9, 1), 3), ((25, 2), 2)]
)
def test_step_after_one_to_which_a_generation_went_back_is_never_durable(
    tmp_path: Path, saved: tuple[int, int] | None, last_generation: int
) -> None:
    """The keeper stood still; the newest generation goes on from a later step of the other branch.

    Meanwhile nothing became durable, or a step before it: of its generation or of the newer one,
    before the newest began or after that.
    """
    gate = Gate("create", ".bin")
    node, other = Node(gate.over(tmp_path)), Node(FolderBucket(str(tmp_path)))
    other.committer.open(1, 0)
    node.take(a_snapshot(30), a_plan())
    gate.wait_reached()
    for generation, step in ((2, 10), (3, 31)):
        other.committer.open(generation, step)
        if saved is not None and generation == last_generation:
            other.take(a_snapshot(*saved), a_plan())
            assert outcome(other, *saved) is CommitOutcome.COMMITTED
    before = committed(other.bucket)
    gate.opened.set()
    assert outcome(node, 30) is CommitOutcome.TOO_LATE
    assert committed(other.bucket) == before


def test_upload_behind_which_the_training_went_back_is_abandoned(tmp_path: Path) -> None:
    """The log would refuse it when it is done, and until then nothing newer could be saved.

    One that the newer generation went on from is uploaded to its end.
    """
    gate = Gate("create", ".bin")
    node = Node(gate.over(tmp_path))
    node.committer.open(1, 0)
    node.take(a_snapshot(20), a_plan(parts=20))
    gate.wait_reached()
    node.saver.open(2, 20, 1)
    assert node.saver.is_busy and node.saver.take_notes() == ()
    node.saver.open(3, 10, 1)
    assert not node.saver.is_busy
    (note,) = node.saver.take_notes()
    assert note == (
        "The checkpoint of step 20 could not be saved: It was not durable in time, so the training "
        "goes on from step 10."
    )
    gate.opened.set()
    job = node.saver.wait(a_snapshot(20), PATIENCE_S)
    assert job is not None
    until(lambda: job.outcome is CommitOutcome.TOO_LATE, lambda: job.stage)
    assert len(gate.names) < 20
    node.take(a_snapshot(11, 3), a_plan())
    assert outcome(node, 11, 3) is CommitOutcome.COMMITTED


def test_step_that_the_next_generation_takes_again_is_durable_by_either(tmp_path: Path) -> None:
    """The ranks that wait for the second one hear no failure, and the keeper ends with success."""
    node, other = two_nodes(tmp_path)
    node.take(MADE, a_plan())
    assert outcome(node) in GOOD
    other.committer.open(2, MADE.step)
    again = a_snapshot(10, 2)
    other.take(again, a_plan())
    until(lambda: other.saver.wait(again, 0.1) is not None, lambda: "still under way")
    job = other.saver.wait(again, 0.0)
    assert job is not None and job.outcome is CommitOutcome.ALREADY and not job.why
    assert [each.snapshot for each in committed(node.bucket)] == [MADE]


def test_zombie_that_waits_for_a_share_is_over_as_soon_as_it_is_fenced(tmp_path: Path) -> None:
    """It holds up no snapshot of the generation that rules; the reason is told to who waits."""
    node, other = two_nodes(tmp_path)
    node.take(MADE, FIRST)
    until(lambda: (tmp_path / fragment_name(MADE, 0, 0)).exists(), lambda: "no fragment")
    assert node.saver.is_busy
    other.committer.open(2, 5)
    assert outcome(node) is CommitOutcome.TOO_LATE
    assert not node.saver.is_busy
    job = node.saver.wait(MADE, 0.0)
    assert job is not None and job.why


@pytest.mark.parametrize("start_step", [0, 10, 99])
def test_zombie_of_another_run_commits_nothing(tmp_path: Path, start_step: int) -> None:
    """Whatever step the later run began at: the same steps of two runs are different states."""
    gate = Gate("create", ".bin")
    node = Node(gate.over(tmp_path))
    node.committer.open(1, 0)
    node.take(MADE, a_plan())
    gate.wait_reached()
    later = Node(FolderBucket(str(tmp_path)), uid="later")
    assert later.committer.open(1, start_step) == 2
    gate.opened.set()
    assert outcome(node) is CommitOutcome.TOO_LATE
    assert committed(later.bucket) == []
    assert CommitLog(later.bucket).state().run == 2


def test_storage_is_asked_while_nobody_waits_for_the_answer(tmp_path: Path) -> None:
    """A snapshot that was fenced asks who rules now; workers get their answers meanwhile."""
    held_up: list[str] = []

    def before(verb: str, name: str) -> None:
        asking = Thread(target=lambda: node.saver.is_busy, daemon=True)
        asking.start()
        asking.join(UPLOAD_S)
        held_up.extend([f"{verb} {name}"] if asking.is_alive() else [])

    node = Node(Meddling(FolderBucket(str(tmp_path)), before))
    node.committer.open(1, 0)
    node.take(MADE, FIRST)
    until(lambda: (tmp_path / fragment_name(MADE, 0, 0)).exists(), lambda: "no fragment")
    Node(FolderBucket(str(tmp_path))).committer.open(2, 0)
    assert outcome(node) is CommitOutcome.TOO_LATE
    assert held_up == []


def test_slower_older_snapshot_of_the_same_generation_is_too_late(tmp_path: Path) -> None:
    """The newest checkpoint stays the newest."""
    gate = Gate("create", ".bin")
    slow, fast = Node(gate.over(tmp_path)), Node(FolderBucket(str(tmp_path)))
    fast.committer.open(1, 0)
    slow.take(MADE, a_plan())
    gate.wait_reached()
    fast.take(a_snapshot(20), a_plan())
    assert outcome(fast, 20) is CommitOutcome.COMMITTED
    gate.opened.set()
    assert outcome(slow) is CommitOutcome.TOO_LATE
    assert [each.snapshot.step for each in committed(fast.bucket)] == [20]
    assert [each.share.snapshot for each in slow.share_memory.records()] == [MADE]

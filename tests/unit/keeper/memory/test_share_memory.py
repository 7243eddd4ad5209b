"""What is in memory: which buffer may be overwritten, and what dead workers leave."""

from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

import pytest

from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.errors import EnvironmentProblem, InvariantBroken
from elasticd.keeper.memory import share_memory as share_memory_module
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.memory.share_record import BUFFERS, ShareRecord, held_of
from elasticd.keeper.wire.message import Plan, Saving
from elasticd.telemetry.cgroup import MemoryLimit
from tests.fixtures.captured_log import captured_log
from tests.fixtures.cluster import until
from tests.unit.keeper.site import (
    PATIENCE_S,
    Gate,
    Node,
    a_plan,
    a_snapshot,
    memfds,
    record_of,
)

PLAN = a_plan()
HALF = a_plan(0, 2)
"""Of a state whose other half another node holds."""


def kept(
    share_memory: ShareMemory, step: int, *, worker: int = 1, plan: Plan = PLAN, gen: int = 1
) -> ShareRecord:
    buffer, _ = share_memory.claim(worker, plan.id)
    record = record_of(share_memory, worker, plan, buffer, a_snapshot(step, gen))
    share_memory.add(worker, plan.id, buffer, record)
    return record


def steps(share_memory: ShareMemory) -> list[int]:
    return sorted(each.share.snapshot.step for each in share_memory.records())


def planned() -> ShareMemory:
    share_memory = ShareMemory()
    share_memory.plan(1, [PLAN])
    return share_memory


def test_newest_whole_one_is_never_given_away() -> None:
    """Whatever is claimed, dropped or filled: each claim leaves it as it is."""
    share_memory = planned()
    for step in range(10, 20):
        newest = kept(share_memory, step)
        for _ in range(3):
            buffer, _ = share_memory.claim(1, PLAN.id)
            assert share_memory.memory(1, PLAN.id, buffer) is not newest.memory
            assert newest.is_wanted and newest in share_memory.records()
            share_memory.drop(1, PLAN.id)


def test_part_of_the_containers_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers and keepers share one limit, and two buffers of a large state are much of it."""
    size = PLAN.layout.size
    limit = MemoryLimit(size_bytes=8 * size, path=Path("memory.max"))
    monkeypatch.setattr(share_memory_module, "memory_limit", lambda: limit)
    share_memory = planned()
    with captured_log() as logs:
        for step in range(4):
            kept(share_memory, step)
    told = [(e["held_bytes"], e["share"]) for e in logs if e["event"] == "memory.taken"]
    assert told == [(size, 0.125), (2 * size, 0.25)] and BUFFERS == 2


def test_newest_is_told_by_generation_before_step() -> None:
    """A later generation may have gone back to an earlier step."""
    share_memory = planned()
    kept(share_memory, 50, gen=1)
    newest = kept(share_memory, 40, gen=2)
    share_memory.claim(1, PLAN.id)
    assert newest.is_wanted
    assert steps(share_memory) == [40]


def test_one_that_is_uploaded_since_it_was_told_is_found() -> None:
    """A restore was told of it while it was held in memory only; its bytes are the same."""
    share_memory = planned()
    record = kept(share_memory, 10)
    record.saving = Saving.NONE
    told = held_of(record)
    assert share_memory.find(told) is record
    record.saving = Saving.USUAL
    assert share_memory.find(told) is record
    record.is_wanted = False
    assert share_memory.find(told) is None


def test_older_one_is_told_that_its_memory_is_given_away() -> None:
    """Whoever reads it must stop; the record is not found any more."""
    share_memory = planned()
    older, newer = kept(share_memory, 1), kept(share_memory, 2)
    assert older.is_wanted
    share_memory.claim(1, PLAN.id)
    assert (older.is_wanted, newer.is_wanted) == (False, True)
    assert share_memory.find(held_of(older)) is None
    assert share_memory.find(held_of(newer)) is newer


def test_memory_is_taken_when_it_is_needed_and_told_once() -> None:
    """Two for each plan, and the worker that has mapped it needs no second file."""
    before = memfds()
    share_memory = planned()
    until(lambda: memfds() <= before, memfds)
    given = []
    for step in range(6):
        buffer, memory = share_memory.claim(1, PLAN.id)
        given.append(memory is not None)
        share_memory.add(
            1, PLAN.id, buffer, record_of(share_memory, 1, PLAN, buffer, a_snapshot(step))
        )
    assert given == [True] * BUFFERS + [False] * 4


def test_buffer_that_was_not_claimed_cannot_be_filled() -> None:
    """Not before a claim, not twice, not another one, not after a drop or in another's name."""
    share_memory = planned()
    record = kept(share_memory, 1)
    buffer, _ = share_memory.claim(1, PLAN.id)
    for wrong in (1 - buffer, -1):
        with pytest.raises(InvariantBroken):
            share_memory.add(1, PLAN.id, wrong, record)
    share_memory.drop(1, PLAN.id)
    with pytest.raises(InvariantBroken):
        share_memory.add(1, PLAN.id, buffer, record)
    for worker, plan in ((2, PLAN.id), (1, 77)):
        with pytest.raises(InvariantBroken):
            share_memory.claim(worker, plan)


def test_what_a_worker_finished_outlives_it_and_what_it_did_not_does_not() -> None:
    """Both stay where nobody here knows which is whole; a claim that nothing came of leaves
    nothing."""
    share_memory = ShareMemory()
    share_memory.plan(1, [HALF])
    kept(share_memory, 1, plan=HALF)
    kept(share_memory, 2, plan=HALF)
    share_memory.leave(1)
    assert steps(share_memory) == [1, 2]
    share_memory.plan(2, [PLAN])
    share_memory.claim(2, PLAN.id)
    share_memory.leave(2)
    share_memory.leave(2)
    assert steps(share_memory) == [1, 2]


def test_plans_that_are_over_leave_what_is_whole() -> None:
    """The worker lives on in another generation, with other memory."""
    share_memory = planned()
    first = kept(share_memory, 1)
    share_memory.plan(1, [PLAN])
    second = kept(share_memory, 2, gen=2)
    assert steps(share_memory) == [1, 2]
    assert second.memory is not first.memory
    for _ in range(3):
        kept(share_memory, 3, gen=2)
    assert first.is_wanted and first in share_memory.records()


def test_orphans_stay_until_a_newer_snapshot_is_durable() -> None:
    """Uploaded or not, second copies too; one of the same age can still be restored from here."""
    share_memory = ShareMemory()
    plans = [a_plan(0, 3), a_plan(1, 3, holder=1)]
    share_memory.plan(1, plans)
    for plan in plans:
        kept(share_memory, 10, plan=plan).is_uploaded = True
        kept(share_memory, 20, plan=plan)
    old = share_memory.records()
    share_memory.leave(1)
    share_memory.plan(2, plans)
    kept(share_memory, 30, worker=2, plan=plans[0])
    share_memory.forget_before(a_snapshot(10))
    assert steps(share_memory) == [10, 10, 20, 20, 30]
    share_memory.forget_before(a_snapshot(20))
    assert steps(share_memory) == [20, 20, 30]
    assert [each.is_wanted for each in old] == [each.share.snapshot.step == 20 for each in old]
    share_memory.forget_before(a_snapshot(5, generation=2))
    assert steps(share_memory) == [30], (
        "what a worker that lives may still write to is not an orphan"
    )


def test_orphans_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the world changes while nothing becomes durable."""
    monkeypatch.setattr(share_memory_module, "_ORPHANS_LIMIT", 6)
    before = memfds()
    share_memory = ShareMemory()
    for step in range(0, 40, 2):
        share_memory.plan(1, [HALF])
        kept(share_memory, step, plan=HALF)
        kept(share_memory, step + 1, plan=HALF)
    share_memory.leave(1)
    assert steps(share_memory) == list(range(34, 40))
    assert (memfds() - before).total() == 2 * 6, "each memory has its file and its mapping's"


def test_bound_of_orphans_leaves_the_newest_snapshot_of_all_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a node with many workers, however many of them left first; others have the rest of it."""
    workers = range(1, 5)
    monkeypatch.setattr(share_memory_module, "_ORPHANS_LIMIT", len(workers))
    share_memory = ShareMemory()
    plans = {worker: a_plan(worker, 2 * len(workers)) for worker in workers}
    for worker, plan in plans.items():
        share_memory.plan(worker, [plan])
        kept(share_memory, 10, worker=worker, plan=plan)
        kept(share_memory, 20, worker=worker, plan=plan)
    for worker in workers:
        share_memory.leave(worker)
    held = [(each.share.snapshot.step, each.share.share) for each in share_memory.records()]
    assert sorted(held) == [(20, worker) for worker in workers]


def test_what_is_older_than_a_whole_one_is_no_use_to_a_restore() -> None:
    """Whole with what other workers of this node have, living or not; what is newer stays too."""
    share_memory = ShareMemory()
    plans = [a_plan(0, 2), a_plan(1, 2)]
    for worker, plan in enumerate(plans):
        share_memory.plan(worker, [plan])
        for step in (10, 20):
            kept(share_memory, step, worker=worker, plan=plan)
    share_memory.leave(0)
    assert steps(share_memory) == [10, 20, 20], "only what nobody writes to any more is given up"
    share_memory.leave(1)
    assert steps(share_memory) == [20, 20]
    share_memory.plan(2, plans[:1])
    kept(share_memory, 30, worker=2, plan=plans[0])
    share_memory.leave(2)
    assert steps(share_memory) == [20, 20, 30], "of 30 a share is missing"


class Room:
    """Memory for so many buffers in all, as a container's limit would have it."""

    def __init__(self, environ: pytest.MonkeyPatch, buffers: int) -> None:
        self._live: WeakSet[SharedMemory] = WeakSet()
        self._buffers = buffers
        real = SharedMemory.new

        def new(size: int) -> SharedMemory:
            if len(self._live) >= self._buffers:
                raise EnvironmentProblem("there is no memory")
            memory = real(size)
            self._live.add(memory)
            return memory

        environ.setattr(SharedMemory, "new", new)


@pytest.mark.parametrize("plan", [PLAN, HALF], ids=["whole here", "a part"])
@pytest.mark.parametrize("room", [2, 3])
def test_world_that_changes_in_an_outage_never_ends_saving(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, room: int
) -> None:
    """Nothing becomes durable, and there is memory for what the guide says: two buffers of each
    share. Each snapshot finds its place, and until it is whole the one before stays."""
    Room(monkeypatch, room)
    share_memory = ShareMemory()
    step = 0
    for gen in range(1, 10):
        share_memory.plan(1, [plan])
        for _ in range(3):
            buffer, _ = share_memory.claim(1, plan.id)
            assert not step or step in steps(share_memory), (
                f"{steps(share_memory)} in generation {gen}"
            )
            step += 10
            record = record_of(share_memory, 1, plan, buffer, a_snapshot(step, gen))
            share_memory.add(1, plan.id, buffer, record)
            del record
    assert step == 270


def test_oldest_orphans_make_room_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all shares at once: without one of them the others are of no use."""
    Room(monkeypatch, 4)
    share_memory = ShareMemory()
    plans = [a_plan(0, 4), a_plan(1, 4)]
    share_memory.plan(1, plans)
    for plan in plans:
        kept(share_memory, 10, plan=plan)
        kept(share_memory, 20, plan=plan)
    share_memory.leave(1)
    share_memory.plan(2, plans)
    share_memory.claim(2, plans[0].id)
    assert steps(share_memory) == [20, 20]
    share_memory.claim(2, plans[1].id)
    for plan in plans:
        assert share_memory.claim(2, plan.id)[0] == 0, "the first buffer, which holds nothing yet"
    assert steps(share_memory) == [20, 20]


def test_orphan_that_is_being_uploaded_is_stopped_for_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who reads it must let go; until then there is no memory, and the next claim finds it."""
    Room(monkeypatch, 2)
    share_memory = ShareMemory()
    share_memory.plan(1, [HALF])
    older = kept(share_memory, 10, plan=HALF)
    kept(share_memory, 20, plan=HALF)
    share_memory.plan(1, [HALF])
    with pytest.raises(EnvironmentProblem):
        share_memory.claim(1, HALF.id)
    assert not older.is_wanted
    del older
    assert share_memory.claim(1, HALF.id)[1] is not None
    assert steps(share_memory) == [20]


def test_claim_that_finds_no_memory_leaves_what_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is saved at the moment, which the worker is told."""
    Room(monkeypatch, 1)
    share_memory = planned()
    only = kept(share_memory, 1)
    with pytest.raises(EnvironmentProblem, match="there is no memory"):
        share_memory.claim(1, PLAN.id)
    assert only.is_wanted and steps(share_memory) == [1]


def test_memory_is_freed_with_the_last_record() -> None:
    """Of workers that left, of plans that are over, of claims that came to nothing."""
    before = memfds()
    share_memory = planned()
    for step in range(5):
        kept(share_memory, step)
    share_memory.plan(1, [PLAN])
    kept(share_memory, 9)
    share_memory.claim(1, PLAN.id)
    assert memfds() - before
    share_memory.leave(1)
    share_memory.forget_before(a_snapshot(10))
    assert share_memory.records() == []
    until(lambda: memfds() <= before, memfds)


def test_commits_free_what_dead_workers_left(tmp_path: Path) -> None:
    """A world that changes at each snapshot costs no more memory at its end than at its start."""
    node = Node(FolderBucket(str(tmp_path)))
    node.committer.open(1, 0)
    counts = []
    for step in range(1, 6):
        # The second holder's copy is never uploaded: the first has done it.
        node.take(a_snapshot(step), a_plan(0, 2), a_plan(1, 2), a_plan(1, 2, holder=1))
        job = node.saver.wait(a_snapshot(step), PATIENCE_S)
        assert job is not None and not job.why
        counts.append(len(node.share_memory.records()))
    assert counts == [3] * 5


def test_part_that_was_read_too_late_gets_no_name(tmp_path: Path) -> None:
    """The buffer is given away while its part is on the way: it may hold anything, so no fragment
    names it, and what took its place is saved."""
    gate = Gate("create", ".bin")
    node = Node(gate.over(tmp_path))
    node.committer.open(1, 0)
    node.take(a_snapshot(1), PLAN)
    gate.wait_reached()
    node.take(a_snapshot(2), PLAN, is_new=False)
    buffer, _ = node.share_memory.claim(1, PLAN.id)
    node.share_memory.memory(1, PLAN.id, buffer).view[:] = b"x" * 100
    gate.opened.set()
    job = node.saver.wait(a_snapshot(1), PATIENCE_S)
    assert job is not None and "newer snapshot took its place" in job.why
    assert not list(tmp_path.glob(f"{a_snapshot(1).folder}/*.json"))
    node.saver.wait(a_snapshot(2), PATIENCE_S)
    assert node.saver.durable_step == 2


# --- snapshots in memory beside an upload -------------------------------------------------------

BESIDE = replace(PLAN, buffers=BUFFERS + 1)


def beside() -> ShareMemory:
    share_memory = ShareMemory()
    share_memory.plan(1, [BESIDE])
    return share_memory


def pinned(share_memory: ShareMemory, step: int) -> ShareRecord:
    record = kept(share_memory, step, plan=BESIDE)
    record.saving = Saving.PINNED
    return record


def test_what_is_uploaded_stays_beside_newer_ones_until_it_is_settled() -> None:
    """A third buffer is taken for it, and no fourth; the newest whole one stays too."""
    share_memory = beside()
    first = pinned(share_memory, 10)
    for step in range(11, 20):
        newest = kept(share_memory, step, plan=BESIDE)
        assert first.is_wanted and newest.is_wanted and len(steps(share_memory)) <= BUFFERS + 1
    buffers = {id(each.memory) for each in share_memory.records()}
    assert len(buffers) == BUFFERS + 1
    share_memory.finish(first.share.snapshot)
    kept(share_memory, 20, plan=BESIDE)
    assert not first.is_wanted and steps(share_memory) == [18, 19, 20]


def test_third_buffer_is_taken_only_where_it_is_needed() -> None:
    """Without an upload two are enough."""
    share_memory = beside()
    for step in range(10, 20):
        kept(share_memory, step, plan=BESIDE)
        assert len(steps(share_memory)) <= BUFFERS


def test_upload_is_given_up_before_the_newest_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no memory for a third buffer, or a second upload was begun meanwhile."""
    share_memory = beside()
    first = pinned(share_memory, 10)
    second = pinned(share_memory, 11)
    monkeypatch.setattr(SharedMemory, "new", _no_memory)
    newest = kept(share_memory, 12, plan=BESIDE)
    assert not first.is_wanted and second.is_wanted and newest.is_wanted


def test_next_upload_is_waited_for_where_one_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its bytes are in storage, or nobody tries any more; the upload after it is not."""
    share_memory = beside()
    pinned(share_memory, 10)
    kept(share_memory, 11, plan=BESIDE)
    monkeypatch.setattr(SharedMemory, "new", _no_memory)
    assert not share_memory.awaits_upload(1)  # There may be memory: who claims will see.
    kept(share_memory, 12, plan=BESIDE)
    assert not share_memory.awaits_upload(1)  # What is held now nobody uploads.
    for step, end in ((13, "uploaded"), (20, "given up")):
        held = pinned(share_memory, step)
        assert not share_memory.awaits_upload(1)
        kept(share_memory, step + 1, plan=BESIDE)
        assert share_memory.awaits_upload(1) and held.is_wanted
        assert not share_memory.awaits_upload(2)
        if end == "uploaded":
            held.is_uploaded = True
        else:
            share_memory.finish(held.share.snapshot)
        assert not share_memory.awaits_upload(1)
        kept(share_memory, step + 2, plan=BESIDE)
        assert not held.is_wanted
        lost = pinned(share_memory, step + 3)
        kept(share_memory, step + 4, plan=BESIDE)
        assert not share_memory.awaits_upload(1)
        kept(share_memory, step + 5, plan=BESIDE)
        assert not lost.is_wanted


def test_upload_that_has_a_buffer_of_its_own_is_not_waited_for() -> None:
    """Nor one of which this node has the second copy: the first holder uploads it."""
    share_memory = beside()
    pinned(share_memory, 10)
    for step in range(11, 20):
        kept(share_memory, step, plan=BESIDE)
        assert not share_memory.awaits_upload(1)


def _no_memory(size: int) -> SharedMemory:
    raise EnvironmentProblem("there is none")

"""Which share is sent next: the newest of each, to where its worker said, again if it failed."""

from typing import cast

from elasticd.checkpoint.commit.upload import UploadShare
from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.mirror.queue import FIRST_PAUSE_S, LAST_PAUSE_S, TRIES_LIMIT, MirrorQueue
from elasticd.keeper.wire.message import KeeperAddress
from tests.unit.keeper.site import a_plan, a_snapshot

HERE = KeeperAddress(host="here", port=1, token="t")
THERE = KeeperAddress(host="there", port=2, token="t")


def a_record(step: int, share: int = 0, generation: int = 1) -> ShareRecord:
    whole = UploadShare(
        snapshot=a_snapshot(step, generation), share=share, shares=4, holder=0,
        layout=a_plan().layout, header=None,
    )  # fmt: skip
    return ShareRecord(share=whole, memory=cast(SharedMemory, None), epoch=0)


def step_of(mirror: MirrorQueue, now_s: float = 0.0) -> int:
    """Of what is next; -1: nothing."""
    task = mirror.next(now_s)
    return task.record.share.snapshot.step if task is not None else -1


def test_nothing_is_sent_before_it_is_known_where_to() -> None:
    """Another worker's address does not count."""
    mirror = MirrorQueue()
    mirror.add(1, a_record(2))
    mirror.use(2, THERE)
    assert mirror.next(0.0) is None and mirror.pause_s(0.0) is None
    mirror.use(1, HERE)
    task = mirror.next(0.0)
    assert task is not None and task.address == HERE


def test_door_of_an_older_plan_is_not_used() -> None:
    """The world may be another one; what was to go there before still does."""
    mirror = MirrorQueue()
    mirror.use(1, HERE)
    mirror.add(1, a_record(2))
    mirror.plan(1)
    mirror.add(1, a_record(4, share=1))
    assert [step_of(mirror), step_of(mirror)] == [2, -1]
    mirror.use(1, THERE)
    task = mirror.next(0.0)
    assert task is not None and task.address == THERE


def test_newest_of_each_share_is_sent_once() -> None:
    """An older one that comes late takes nobody's place."""
    mirror = MirrorQueue()
    mirror.use(1, HERE)
    for record in (a_record(2), a_record(4), a_record(2), a_record(4, share=1)):
        mirror.add(1, record)
    assert [step_of(mirror), step_of(mirror), step_of(mirror)] == [4, 4, -1]


def test_newer_generation_is_newer_whatever_its_step() -> None:
    """It began where an older snapshot stood."""
    mirror = MirrorQueue()
    mirror.use(1, HERE)
    mirror.add(1, a_record(9, generation=1))
    mirror.add(1, a_record(3, generation=2))
    assert step_of(mirror) == 3


def test_what_nobody_wants_is_let_go_of() -> None:
    """Its memory was given away."""
    mirror = MirrorQueue()
    mirror.use(1, HERE)
    record = a_record(2)
    mirror.add(1, record)
    record.is_wanted = False
    assert mirror.next(0.0) is None and not mirror._waiting


def test_worker_that_left_without_a_word_leaves_nothing() -> None:
    """What it had said where to is sent."""
    mirror = MirrorQueue()
    mirror.use(1, HERE)
    mirror.add(1, a_record(2))
    mirror.add(2, a_record(4, share=1))
    mirror.leave(1)
    mirror.leave(2)
    assert [step_of(mirror), step_of(mirror)] == [2, -1] and not mirror._waiting


def test_failure_is_tried_again_later_and_not_for_ever() -> None:
    """With pauses that grow to a limit."""
    mirror = MirrorQueue()
    mirror.use(1, HERE)
    mirror.add(1, a_record(2))
    now_s, pauses = 0.0, []
    for _ in range(TRIES_LIMIT):
        task = mirror.next(now_s)
        assert task is not None
        mirror.failed(task, now_s)
        pause_s = mirror.pause_s(now_s)
        if pause_s is None:
            break
        assert mirror.next(now_s + 0.9 * pause_s) is None
        pauses.append(pause_s)
        now_s += pause_s
    assert len(pauses) == TRIES_LIMIT - 1
    assert pauses[0] == FIRST_PAUSE_S and pauses[-1] == LAST_PAUSE_S
    assert pauses == sorted(pauses)


def test_failure_makes_way_for_a_newer_snapshot() -> None:
    """Only the newest is worth another try; it goes to the newest address."""
    mirror = MirrorQueue()
    mirror.use(1, HERE)
    mirror.add(1, a_record(2))
    task = mirror.next(0.0)
    assert task is not None
    mirror.add(1, a_record(4))
    mirror.failed(task, 0.0)
    task = mirror.next(0.0)
    assert task is not None and task.record.share.snapshot.step == 4
    mirror.use(1, THERE)
    mirror.failed(task, 0.0)
    task = mirror.next(LAST_PAUSE_S)
    assert task is not None and task.address == THERE

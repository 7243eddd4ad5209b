"""What was received: two of each share, and nothing that a restore may read is written over."""

import pytest

from elasticd.checkpoint.commit.upload import UploadShare
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import EnvironmentProblem, Unavailable
from elasticd.keeper.memory import received_shares as received_module
from elasticd.keeper.memory.received_shares import ReceivedShares
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.wire.message import Saving
from tests.unit.keeper.site import a_plan, a_snapshot

SIZE = 100


def receive(
    to: ReceivedShares, made: Snapshot, share: int = 1, size: int = SIZE
) -> ShareRecord | None:
    """Take it as a whole; None if it is there already."""
    slot = to.claim(made, share, 2, size, 0)
    if slot is None:
        return None
    slot.memory.view[:] = bytes([made.step]) * size
    whole = UploadShare(
        snapshot=made, share=share, shares=2, holder=1, layout=a_plan(1, 2).layout, header=None
    )
    record = ShareRecord(share=whole, memory=slot.memory, epoch=0)
    to.add(slot, record)
    return record


def held(of: ReceivedShares) -> list[tuple[int, int]]:
    """(generation, step) of all, whole and unchanged."""
    for each in of.records():
        assert set(each.memory.view) == {each.share.snapshot.step} and each.is_wanted
    return sorted(
        (each.share.snapshot.generation, each.share.snapshot.step) for each in of.records()
    )


def test_oldest_of_two_makes_way_and_its_memory_is_used_again() -> None:
    """It is not wanted from the moment on at which the next begins to come."""
    to = ReceivedShares()
    first, second = receive(to, a_snapshot(2)), receive(to, a_snapshot(4))
    assert first is not None and second is not None
    slot = to.claim(a_snapshot(6), 1, 2, SIZE, 0)
    assert slot is not None and slot.memory is first.memory
    assert not first.is_wanted and second.is_wanted
    to.drop(slot)
    assert held(to) == [(1, 4)]


def test_another_size_gets_other_memory() -> None:
    """The state has grown within the generation."""
    to = ReceivedShares()
    for step, size in ((2, 10), (4, 10), (6, 20)):
        receive(to, a_snapshot(step), size=size)
    assert [each.memory.size for each in to.records()] == [10, 20]


def test_same_one_is_not_taken_twice_nor_an_older_one() -> None:
    """The sender may have missed our answer; a generation that is over comes too late."""
    to = ReceivedShares()
    receive(to, a_snapshot(4, generation=2))
    assert receive(to, a_snapshot(4, generation=2)) is None
    for late in (a_snapshot(2, generation=2), a_snapshot(9, generation=1)):
        with pytest.raises(Unavailable, match="newer"):
            receive(to, late)
    assert held(to) == [(2, 4)]


def test_one_at_a_time_of_each_share() -> None:
    """A connection that hangs keeps its buffer; another share has nothing to do with it."""
    to = ReceivedShares()
    slot = to.claim(a_snapshot(2), 1, 2, SIZE, 0)
    assert slot is not None
    with pytest.raises(Unavailable, match="being received"):
        receive(to, a_snapshot(4))
    assert receive(to, a_snapshot(4), share=0) is not None
    to.drop(slot)
    assert receive(to, a_snapshot(4)) is not None


@pytest.mark.parametrize("late", [1, 2])
def test_nothing_is_written_over_once_a_restore_has_looked(late: int) -> None:
    """Whatever comes late, of the same generation or of the next."""
    to = ReceivedShares()
    for step in (2, 4):
        receive(to, a_snapshot(step))
    to.protect()
    for step in (6, 8, 10):
        receive(to, a_snapshot(step, late))
    assert held(to) == [(1, 2), (1, 4), (late, 8), (late, 10)]


def test_what_was_being_received_while_a_restore_looked_is_kept() -> None:
    """It may complete the newest snapshot for the next restore."""
    to = ReceivedShares()
    receive(to, a_snapshot(2))
    slot = to.claim(a_snapshot(4), 1, 2, SIZE, 0)
    assert slot is not None
    to.protect()
    slot.memory.view[:] = bytes([4]) * SIZE
    share = UploadShare(
        snapshot=a_snapshot(4), share=1, shares=2, holder=1, layout=a_plan(1, 2).layout, header=None
    )
    to.add(slot, ShareRecord(share=share, memory=slot.memory, epoch=0))
    assert held(to) == [(1, 2), (1, 4)]


def test_worlds_that_change_without_a_checkpoint_do_not_add_up() -> None:
    """Two of the generation that is, two of those that were."""
    to = ReceivedShares()
    for generation in range(1, 9):
        for step in (2, 4):
            receive(to, a_snapshot(step, generation))
    assert held(to) == [(7, 2), (7, 4), (8, 2), (8, 4)]


def test_durable_checkpoint_frees_what_is_older() -> None:
    """All of older generations; of its own the two buffers stay."""
    to = ReceivedShares()
    for generation in (1, 2):
        for step in (2, 4):
            receive(to, a_snapshot(step, generation))
    receive(to, a_snapshot(2), share=0)
    to.forget_before(a_snapshot(3, generation=2))
    assert held(to) == [(2, 2), (2, 4)]


def test_no_memory_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are held as before, and the next try may have some."""
    to = ReceivedShares()
    receive(to, a_snapshot(2))
    monkeypatch.setattr(received_module, "room_bytes", lambda: SIZE - 1)
    with pytest.raises(EnvironmentProblem):
        receive(to, a_snapshot(4))
    monkeypatch.setattr(received_module, "room_bytes", lambda: SIZE)
    receive(to, a_snapshot(4))
    assert held(to) == [(1, 2), (1, 4)]


def test_shares_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """No keeper has so many ranks."""
    monkeypatch.setattr(received_module, "SHARES_LIMIT", 2)
    to = ReceivedShares()
    receive(to, a_snapshot(2), share=0)
    receive(to, a_snapshot(2), share=1)
    with pytest.raises(Unavailable, match="other shares"):
        receive(to, a_snapshot(2), share=2)


def test_what_is_uploaded_stays_beside_newer_ones_until_it_is_settled() -> None:
    """As in the memory of the node's own workers: three of a share, and no more."""
    to = ReceivedShares()
    first = receive(to, a_snapshot(1))
    assert first is not None
    first.saving = Saving.PINNED
    for step in range(2, 9):
        newest = receive(to, a_snapshot(step))
        assert newest is not None and newest.is_wanted and first.is_wanted
        assert len(held(to)) <= 3
    assert held(to) == [(1, 1), (1, 7), (1, 8)]
    first.is_finished = True
    receive(to, a_snapshot(9))
    assert not first.is_wanted and held(to) == [(1, 7), (1, 8), (1, 9)]

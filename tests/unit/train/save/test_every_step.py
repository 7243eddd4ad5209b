"""Snapshots of each step: held in memory, seldom uploaded, but the last one in any case."""

from collections.abc import Iterator

import pytest

from elasticd.keeper.memory.share_record import BUFFERS
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.train.save import snapshot_schedule as schedule_module
from elasticd.train.save import snapshot_taker as taker_module
from elasticd.train.save.snapshot_taker import SnapshotTaker
from tests.unit.train.save.save_case import Case, Clock, same

STEP_S = 0.1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (taker_module, schedule_module):
        monkeypatch.setattr(module, "time", clock.as_module())
    return clock


@pytest.fixture
def one(clock: Clock) -> Iterator[Case]:
    """One rank that has begun, and holds each step in memory."""
    one = Case("overlapped", (0,), Every(steps=1))
    one.saving = SnapshotTaker(
        one.keeper.connect, Every(steps=1), "overlapped", Every(seconds=60.0), say=one.said.append
    )
    one.begin()
    yield one
    one.saving.end()


def train(one: Case, clock: Clock, steps: int) -> None:
    for _ in range(steps):
        clock.now_s += STEP_S
        one.step()


def uploads(one: Case) -> list[bool]:
    """Of each snapshot, whether it is uploaded."""
    one.saving._finish_copy()
    assert all(each.saving is not ms.Saving.USUAL for each in one.keeper.taken)
    return [each.saving is ms.Saving.PINNED for each in one.keeper.taken]


def test_first_is_uploaded_and_then_one_each_interval(one: Case, clock: Clock) -> None:
    """All others are in memory only, and its plan has a buffer more for that."""
    train(one, clock, 100)
    found = uploads(one)
    assert len(found) > 20 and found[0] and not any(found[1:])
    assert {each.buffers for each in one.keeper.plans.values()} == {BUFFERS + 1}
    clock.now_s += 60.0
    train(one, clock, 100)
    assert sum(uploads(one)) == 2


def test_plan_is_said_before_the_first_snapshot_begins(one: Case, clock: Clock) -> None:
    """Of a state whose memory is taken with its first snapshot, too; and once."""
    said_by_then = []
    answer = one.keeper.answer

    def noted(question: object) -> object:
        if isinstance(question, ms.Claim):
            said_by_then.append(tuple(one.said))
        return answer(question)

    one.keeper.answer = noted  # type: ignore[assignment, method-assign]
    train(one, clock, 20)
    assert "A snapshot of every step is kept in memory: of each" in said_by_then[0][-1]
    assert "beside a step of 100 ms" in said_by_then[0][-1]
    assert sum("is kept in memory: of each" in each for each in one.said) == 1


def test_short_run_that_keeps_only_its_last_state_says_no_plan(one: Case, clock: Clock) -> None:
    """It has no snapshot of a step."""
    train(one, clock, 2)
    one.saving.finish(lambda: False)
    assert one.keeper.taken and not any("is kept in memory" in each for each in one.said)


def test_keeper_that_sends_or_is_gone_holds_the_next_one_up(one: Case, clock: Clock) -> None:
    """What the next node does not have yet is not written over here."""
    train(one, clock, 30)
    before = len(uploads(one))
    one.keeper.answers[ms.GetStatus] = lambda _: ms.Status(
        is_busy=False, durable_step=-1, is_sending=True
    )
    train(one, clock, 10)
    assert len(uploads(one)) == before
    del one.keeper.answers[ms.GetStatus]
    train(one, clock, 10)
    assert len(uploads(one)) > before
    one.keeper.is_gone = True
    before = len(one.keeper.taken)
    train(one, clock, 3)
    assert len(one.keeper.taken) == before


def test_upload_without_room_beside_it_holds_the_next_one_up(one: Case, clock: Clock) -> None:
    """Until it is done: the keeper says so, and all ranks wait, as for one that is not whole."""
    train(one, clock, 30)
    before = len(uploads(one))
    one.keeper.answers[ms.GetStatus] = lambda _: ms.Status(
        is_busy=True, durable_step=-1, awaits_upload=True, notes=("There is no memory.",)
    )
    train(one, clock, 10)
    assert len(uploads(one)) == before and one.said.count("There is no memory.") == 1
    del one.keeper.answers[ms.GetStatus]
    train(one, clock, 10)
    assert len(uploads(one)) > before


def test_last_state_is_uploaded_though_it_is_in_memory(one: Case, clock: Clock) -> None:
    """The end of a run waits for storage, not for memory."""
    train(one, clock, 30)
    while one.keeper.taken[-1].snapshot.step != one.state.position[0]:
        train(one, clock, 1)
        one.saving._finish_copy()
    entries = one.state.entries()
    assert one.keeper.taken[-1].saving is ms.Saving.NONE
    one.saving.finish(lambda: True)
    last = one.keeper.taken[-1]
    assert last.saving is ms.Saving.USUAL
    assert same(one.keeper.state(last)["net"], entries["net"])
    (question,) = one.keeper.of(ms.WaitDurable)
    assert question.snapshot == last.snapshot


def test_plan_is_said_once_before_the_first(one: Case, clock: Clock) -> None:
    """And later what it turned out to cost."""
    train(one, clock, 300)
    assert one.said[0].startswith("A snapshot of every step is kept in memory: ")
    assert one.said[1].startswith("A snapshot of every step ")
    assert len(one.said) == 2


def test_next_generation_does_not_wait_for_steps_to_compare_with(one: Case, clock: Clock) -> None:
    """What a step takes is known: its second step is held already."""
    train(one, clock, 60)
    one.saving.end()
    one.begin(generation=4)
    before = len(one.keeper.taken)
    train(one, clock, 2)
    one.saving._finish_copy()
    assert [each.snapshot.step for each in one.keeper.taken[before:]] == [62]


def test_new_process_takes_over_the_interval_that_the_others_know(one: Case) -> None:
    """Half of it, as whoever was in the generation before; it tells it on from there."""
    assert one.saving.interval == 1
    one.saving.end()
    one.begin(generation=4, interval=17)
    assert one.saving.interval == 9


@pytest.mark.parametrize("place", ["memory", "ranks", "storage"])
def test_step_that_was_restored_from_memory_is_uploaded_at_once(
    one: Case, clock: Clock, place: str
) -> None:
    """A stop that comes first uploads that very step; and else the first snapshot is uploaded."""
    one.saving.end()
    one.saving.restored(0, place, generation=4)
    one.begin(generation=4)
    one.saving.take_last(0)
    assert one.steps == ([] if place == "storage" else [0])


def test_step_that_was_restored_from_memory_is_on_its_way_where_each_is_uploaded() -> None:
    """As without snapshots of each step."""
    one = Case("blocking", (0,), Every(steps=1))
    for place, saved in (("memory", 5), ("storage", 5), ("ranks", -1)):
        one.saving.restored(5, place, generation=3)
        assert one.saving.saved_step == saved

"""The end of a run: its last state is durable, or somebody reads why not."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import Unavailable
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.train.save import snapshot_taker as module
from elasticd.train.save.snapshot_taker import FINAL_LIMIT_S, FINAL_TRIES
from tests.unit.train.save.save_case import Case, Clock, same

Make = Callable[..., Case]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock.as_module())
    return clock


@pytest.fixture
def case(clock: Clock) -> Iterator[Make]:
    """Makes cases that have begun; no copy goes on after the test."""
    made: list[Case] = []

    def make(
        mode: str = "blocking", nodes: Sequence[int] = (0,), every: int = 1, **given: Any
    ) -> Case:
        made.append(Case(mode, nodes, Every(steps=every)))
        made[-1].begin(**given)
        return made[-1]

    yield make
    for each in made:
        each.saving.end()


def finished(one: Case, *, is_wanted: Callable[[], bool] = lambda: True) -> list[ms.WaitDurable]:
    """Finish; returns what was waited for."""
    one.saving.finish(is_wanted)
    return one.keeper.of(ms.WaitDurable)


@pytest.mark.parametrize("mode", ["blocking", "overlapped"])
@pytest.mark.parametrize("every", [1, 100])
def test_finish_saves_the_last_state_once(case: Make, mode: str, every: int) -> None:
    """And returns when it is durable."""
    one = case(mode, every=every)
    one.step()
    entries = one.step()
    (question,) = finished(one)
    assert question.snapshot == Snapshot(run=7, generation=3, step=2)
    assert one.steps == ([1, 2] if every == 1 else [2])
    assert same(one.keeper.state(one.keeper.taken[-1]), entries)


def test_finish_waits_as_long_as_it_takes(case: Make) -> None:
    """Asking again and again."""
    one = case()
    one.step()
    turns = iter([False, False, True])
    one.keeper.answers[ms.WaitDurable] = lambda question: ms.Durability(
        is_durable=next(turns), why="It takes longer than that."
    )
    assert len(finished(one)) == 3
    assert one.said == []


def test_finish_gives_up_in_the_end(case: Make, clock: Clock) -> None:
    """With a sentence; a job must not hang for a checkpoint."""
    one = case()
    one.step()

    def await_long(question: ms.WaitDurable) -> ms.Durability:
        clock.now_s += FINAL_LIMIT_S / 3 + 1
        return ms.Durability(is_durable=False, why="It takes longer than that.")

    one.keeper.answers[ms.WaitDurable] = await_long
    assert len(finished(one)) == 3
    assert one.said == ["The last state was not durable in time."]


def test_finish_says_why_the_last_state_was_not_saved(case: Make) -> None:
    """And does not wait for what is not going to happen."""
    one = case()
    one.step()
    one.keeper.answers[ms.WaitDurable] = lambda _: ms.Durability(
        is_durable=False, why="The disk is full."
    )
    assert len(finished(one)) == 1
    assert one.said == ["The last state was not saved: The disk is full."]


def test_finish_ends_with_its_generation(case: Make) -> None:
    """Somebody was lost: the others go on training."""
    one = case()
    one.step()
    turns = iter([True, False])
    one.keeper.answers[ms.WaitDurable] = lambda _: ms.Durability(is_durable=False)
    assert len(finished(one, is_wanted=lambda: next(turns))) == 1
    assert one.said == [], "it was not late: nobody waits any more"


def test_finish_hands_over_again_what_an_earlier_generation_saved(case: Make) -> None:
    """A share of that may be lost with its rank, and a new rank has only what it takes itself."""
    one = case()
    entries = one.step()
    one.saving.end()
    one.begin(generation=4)
    (question,) = finished(one)
    assert question.snapshot == Snapshot(run=7, generation=4, step=1)
    assert [each.snapshot.generation for each in one.keeper.taken] == [3, 4]
    assert same(one.keeper.state(one.keeper.taken[-1]), entries)
    assert one.said == []


@pytest.mark.parametrize("place", ["memory", "storage"])
def test_finish_hands_over_again_what_was_restored_from_memory(case: Make, place: str) -> None:
    """Its upload may have been given up; what came from storage is durable."""
    one = case()
    one.step()
    one.saving.end()
    one.saving.restored(1, place, generation=4)
    one.begin(generation=4)
    asked = [each.snapshot.generation for each in finished(one)]
    assert asked == ([4] if place == "memory" else [])
    one.saving.end()
    one.begin(generation=5)
    assert [each.snapshot.generation for each in finished(one)] == [*asked, 5], "all ranks take it"


def test_what_was_saved_last_is_waited_for_under_its_own_name(case: Make) -> None:
    """The parameters may have been changed since, so that it cannot be taken again."""
    one = case()
    one.step()
    one.saving.end()
    one.begin(generation=4)
    assert not one.saving.has_saved(1)
    assert one.saving.wait(1.0)
    (question,) = one.keeper.of(ms.WaitDurable)
    assert question.snapshot == Snapshot(run=7, generation=3, step=1)


def test_finish_of_what_was_restored_whole_has_nothing_to_wait_for(case: Make) -> None:
    """The same job called again."""
    one = case()
    one.state.position = (9, 1)
    one.saving.restored(9, "storage", generation=3)
    assert finished(one) == []


@pytest.mark.parametrize(
    ("kind", "every"), [(ms.Claim, 100), (ms.WaitDurable, 1), (ms.WaitDurable, 100)]
)
def test_finish_outlives_a_keeper_that_ends_meanwhile(case: Make, kind: type, every: int) -> None:
    """It is the last time that somebody has the state: the next keeper gets it again."""
    one = case(every=every)
    entries = one.step()

    def end(question: object) -> object:
        del one.keeper.answers[kind]
        one.keeper.taken.clear()
        raise Unavailable("it has gone")

    one.keeper.answers[kind] = end
    assert finished(one)[-1].snapshot.step == 1
    assert one.steps == [1] and one.keeper.connected == 2
    assert same(one.keeper.state(one.keeper.taken[-1]), entries)


def test_finish_gives_up_keepers_that_end_again_and_again(case: Make) -> None:
    """A job must end."""
    one = case()
    one.step()

    def end(question: object) -> object:
        raise Unavailable("it has gone")

    one.keeper.answers[ms.WaitDurable] = end
    assert len(finished(one)) == FINAL_TRIES
    assert one.said == ["Nothing is saved at the moment: it has gone"]


def test_finish_hands_over_again_what_a_keeper_took_with_it(case: Make) -> None:
    """One that is new does not know the snapshot, and would be asked for it for ten minutes."""
    one = case()
    one.step()
    one.keeper.is_gone = True
    assert not one.saving.is_free()
    one.keeper.is_gone = False
    one.keeper.taken.clear()
    assert len(finished(one)) == 1
    assert one.steps == [1]

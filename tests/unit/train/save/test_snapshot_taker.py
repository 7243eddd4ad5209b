"""Snapshots through real memory: what is in them, and what becomes of a training without them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import InvariantBroken, Unavailable
from elasticd.keeper.wire import message as ms
from elasticd.records.checkpoint import Every
from elasticd.train.save import snapshot_taker as module
from elasticd.train.save.overlapped_copy import OverlappedCopy
from elasticd.train.save.snapshot_taker import RETRY_S
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


# --- what is handed over ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["blocking", "overlapped"])
def test_snapshots_are_the_state_of_their_commits(case: Make, mode: str) -> None:
    """Of every step, through two buffers in turn, while the training goes on."""
    one = case(mode)
    for _ in range(6):
        entries = one.step()
        one.state.net(torch.randn(8, 4))  # The next forward pass changes statistics.
        one.saving._finish_copy()
        assert same(one.keeper.state(one.keeper.taken[-1]), entries)
    assert one.steps == [1, 2, 3, 4, 5, 6]
    assert one.said == []


def test_snapshot_says_what_it_is(case: Make) -> None:
    """Run, generation, step, epoch and world size are those of the commit."""
    one = case(nodes=(0, 0))
    one.state.position = (4, 2)
    one.step()
    (taken,) = one.keeper.taken
    assert taken.snapshot == Snapshot(run=7, generation=3, step=5)
    assert (taken.epoch, taken.world_size) == (2, 2)
    assert taken.skeleton != ""


def test_rank_brings_its_own_share_and_that_of_another_node(case: Make) -> None:
    """Two plans, two buffers; both are of one snapshot, and share 0 alone says what is whole."""
    ranks = [case(nodes=(0, 1), rank=0), case(nodes=(0, 1), rank=1)]
    ranks[1].saving._schedule = None  # There is no store between the two.
    entries = ranks[0].step()
    ranks[1].state.train()
    ranks[1].saving.take(1)
    held = [[told(one, each) for each in one.keeper.taken] for one in ranks]
    assert held == [[(0, 0, True), (1, 1, False)], [(1, 0, False), (0, 1, True)]]
    for one in ranks:
        assert len({each.plan for each in one.keeper.taken}) == 2
        assert same(one.keeper.state(*one.keeper.taken), entries), "either node has all of it"


def told(one: Case, taken: ms.SaveSnapshot) -> tuple[int, int, bool]:
    """Share, holder, and does it say what is no tensor?"""
    plan = one.keeper.plans[taken.plan]
    return plan.share, plan.holder, bool(taken.skeleton)


def test_plan_is_made_anew_when_the_optimizer_has_state(case: Make) -> None:
    """A snapshot before the first step has none of it; no old number is used again."""
    one = case()
    one.saving.take(0)
    entries = one.step()
    one.step()
    plans = [[each.id for each in said.plans] for said in one.keeper.of(ms.Plans)]
    first = plans[0][0]
    assert plans == [[first], [first + 1]], "and not for every snapshot"
    assert same(one.keeper.state(one.keeper.taken[1]), entries)


def test_plan_that_did_not_arrive_is_sent_again(case: Make) -> None:
    """The answer to what was told comes with the next question, which may be the plan."""
    one = case()
    one.keeper.owed = InvariantBroken("a buffer was filled that was not claimed")
    one.step()
    assert one.steps == [] and len(one.said) == 1
    one.keeper.owed = None
    one.step()
    assert one.steps == [2]
    one.keeper.answers[ms.Plans] = lambda question: fail_once(one)
    one.state.best = torch.ones(2)
    one.step()
    one.step()
    assert one.steps == [2, 4]


def fail_once(one: Case) -> object:
    del one.keeper.answers[ms.Plans]
    raise InvariantBroken("this")


def test_new_generation_plans_for_its_world(case: Make) -> None:
    """Another number of ranks, other shares."""
    one = case()
    one.step()
    one.saving.end()
    one.nodes = (0, 0)
    one.begin(generation=4)
    one.step()
    plans = [said.plans[0] for said in one.keeper.of(ms.Plans)]
    assert [each.shares for each in plans] == [1, 2]
    assert plans[0].id != plans[1].id
    assert one.keeper.taken[-1].snapshot.generation == 4


def test_rank_0_opens_a_generation_unless_the_restore_did(case: Make) -> None:
    """Older generations cannot commit from then on."""
    assert case().keeper.of(ms.Open) == [ms.Open(generation=3, step=0, run=7)]
    assert case(is_opened=True).keeper.asked == []
    assert case(rank=1, nodes=(0, 0)).keeper.asked == []


# --- when one is taken --------------------------------------------------------------------------


def test_snapshots_are_taken_when_they_are_due(case: Make) -> None:
    """Every third step, and a commit of the same step is none of its own."""
    one = case(every=3)
    for _ in range(7):
        one.step()
    one.saving.committed(7)
    assert one.steps == [3, 6]


def test_what_a_step_waits_for_a_copy_is_measured(case: Make, clock: Clock) -> None:
    """Also the question whether one is due; a step that does not look costs nothing."""
    one = case(every=2)

    def slowly(question: object) -> ms.Status:
        clock.now_s += 3.0
        return ms.Status(is_busy=False, durable_step=-1, notes=())

    one.keeper.answers[ms.GetStatus] = slowly
    one.step()
    assert one.saving.spent.save_s == 0.0
    one.step()
    assert one.steps == [2]
    assert one.saving.spent.save_s == 3.0


def test_busy_keeper_is_left_alone(case: Make) -> None:
    """One snapshot at a time is on its way to storage."""
    one = case()
    one.keeper.is_busy = True
    one.step()
    one.keeper.is_busy = False
    one.step()
    assert one.steps == [2]
    assert len(one.keeper.of(ms.Claim)) == 1


def test_take_last_takes_what_was_not_taken_yet(case: Make) -> None:
    """At once, whatever form is used else; and only within a generation."""
    one = case("overlapped", every=100)
    one.state.train()
    one.saving.take_last(1)
    assert one.steps == [1], "handed over before it returned"
    one.saving.take_last(1)
    assert one.steps == [1]
    one.saving.end()
    one.saving.take_last(2)
    assert one.steps == [1]


def test_nothing_reads_the_state_after_the_end(case: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next world loads into the same tensors."""
    is_alive = []
    finish = OverlappedCopy.finish

    def look(overlap: OverlappedCopy) -> None:
        finish(overlap)
        is_alive.append(overlap._thread.is_alive())

    monkeypatch.setattr(OverlappedCopy, "finish", look)
    one = case("overlapped")
    one.step()
    one.saving.end()
    assert is_alive == [False] and one.steps == [1]


def test_write_beside_the_copy_drops_the_snapshot(
    case: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once, the buffers are given back, and from then on copies are made at once."""
    one = case("overlapped")
    sums = iter(range(9))
    monkeypatch.setattr(OverlappedCopy, "_sum", lambda self: next(sums))
    one.step()
    one.saving._finish_copy()
    assert one.steps == [] and len(one.keeper.of(ms.ReleaseBuffer)) == 1
    one.saving.finish(lambda: True)
    assert one.steps == [1], "the last state is taken all the same"
    assert len(one.said) == 1 and "between two steps from now on" in one.said[0]


def test_copy_that_failed_is_said_and_taken_again_at_the_end(
    case: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training does not notice; the last state is saved all the same."""
    one = case("overlapped")
    monkeypatch.setattr(OverlappedCopy, "_copy", lambda self: torch.ones(2).view(3))
    one.step()
    one.saving.finish(lambda: True)
    assert one.steps == [1]
    assert len(one.said) == 1 and one.said[0].startswith("A snapshot was not taken: RuntimeError")


# --- without a keeper, without memory -----------------------------------------------------------


def test_training_goes_on_without_a_keeper(case: Make, clock: Clock) -> None:
    """One sentence; it is looked for again after a while, and then snapshots are taken again."""
    one = case()
    one.step()
    one.keeper.is_gone = True
    for _ in range(5):
        one.step()
    assert one.keeper.connected == 1, "not with every step"
    clock.now_s += RETRY_S + 1
    one.step()
    one.step()
    assert one.keeper.connected == 2
    one.keeper.is_gone = False
    clock.now_s += RETRY_S + 1
    entries = one.step()
    assert one.steps == [1, 9]
    assert same(one.keeper.state(one.keeper.taken[-1]), entries)
    assert len(one.keeper.of(ms.Plans)) == 2, "the new one knows of no plan"
    gone = [said for said in one.said if "it has gone" in said]
    assert len(gone) == 1 and gone[0].startswith("Nothing is saved at the moment: ")
    assert len(one.said) == 2


def test_keeper_that_was_started_again_is_found_before_it_is_asked_for_a_state(case: Make) -> None:
    """A rank that has a part of the state would end at the first question to the old one."""
    one = case()
    one.step()

    def end(question: object) -> object:
        del one.keeper.answers[ms.GetStatus]
        raise Unavailable("it has gone")

    one.keeper.answers[ms.GetStatus] = end
    one.saving.present_client().ask(ms.GetStatus(), ms.Status)
    assert one.keeper.connected == 2
    one.saving.present_client()
    assert one.keeper.connected == 2, "one that answers is kept"


def test_keeper_that_was_never_there_stops_nothing(clock: Clock) -> None:
    """Nor when a generation begins."""
    one = Case("blocking", (0,), Every(steps=1))
    one.keeper.is_gone = True
    one.begin()
    one.step()
    one.saving.take_last(2)
    one.saving.finish(lambda: True)
    one.saving.end()
    assert one.said == ["Nothing is saved at the moment: nobody listens"]


def test_training_goes_on_without_memory(case: Make) -> None:
    """One sentence, until there is some."""
    one = case()
    one.keeper.is_full = True
    for _ in range(3):
        one.step()
    one.keeper.is_full = False
    one.step()
    assert one.steps == [4]
    assert one.said == ["Nothing is saved at the moment: there is no memory"]


def test_buffer_that_is_not_given_is_said_too(case: Make) -> None:
    """A keeper may answer so instead."""
    one = case()
    one.keeper.answers[ms.Claim] = lambda question: ms.Claimed(buffer=-1)
    one.step()
    one.step()
    assert one.steps == []
    assert one.said == ["Nothing is saved at the moment: no memory."]


def test_state_that_cannot_be_saved_is_said_once_by_its_name(case: Make) -> None:
    """It trains all the same."""
    one = case()
    one.state.best = torch.empty(2, dtype=torch.uint1)  # type: ignore[attr-defined]
    one.step()
    one.step()
    assert one.steps == [] and len(one.said) == 1
    assert "state.best is of the type uint1" in one.said[0]


def test_notes_of_the_keeper_are_said(case: Make) -> None:
    """What went wrong on the way to storage, say."""
    one = case()
    one.keeper.notes = ("Step 5 could not be saved.",)
    one.step()
    one.step()
    assert one.said == ["Step 5 could not be saved."]

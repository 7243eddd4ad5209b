"""The last snapshot of a job that is stopped: waited for, and told of."""

from types import SimpleNamespace

import pytest

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import Unavailable
from elasticd.keeper.wire import message as ms
from elasticd.train.session import final_save as module
from elasticd.train.session.final_save import NOT_AGREED, NOT_IN_TIME, NOT_TAKEN, FinalSave
from tests.unit.train.save.save_case import Clock, Keeper

WITHIN_S = 26.0


class Case:
    """A rank that has left after step 9, and its keeper."""

    def __init__(self, clock: Clock) -> None:
        self.keeper = Keeper()
        self.keeper.answers[ms.WaitDurable] = self.awaited
        self.keeper.answers[ms.GetStatus] = lambda _: ms.Status(
            is_busy=True, durable_step=self.durable_step
        )
        self.keeper.answers[ms.Find] = lambda _: (
            ms.Found(number=1, snapshot=Snapshot(run=2, generation=3, step=self.logged_step))
            if self.logged_step >= 0
            else ms.Found(number=0)
        )
        self.clock = clock
        self.final_save = FinalSave(WITHIN_S)
        self.durable_step = self.logged_step = -1
        self.answers: list[ms.Durability] = []
        """Then it takes longer, for ever."""

    def awaited(self, question: ms.WaitDurable) -> ms.Durability:
        assert question.timeout_s > 0
        self.clock.now_s += question.timeout_s
        longer = ms.Durability(is_durable=False, why="It takes longer than that.")
        return self.answers.pop(0) if self.answers else longer

    def wait_until_durable(
        self, *, is_agreed: bool = True, saved_step: int = 9, restored_step: int = -1,
        is_wanted: bool = True,
    ) -> tuple[int, int, str]:  # fmt: skip
        saving = SimpleNamespace(run=2, saved_step=saved_step, client=self.keeper.connect())
        self.final_save.wait_until_durable(
            saving,
            generation=4,
            step=9,
            is_agreed=is_agreed,
            restored_step=restored_step,
            is_wanted=lambda: is_wanted,
        )
        left = self.final_save.left(9)
        return left.step, left.durable_step, left.why


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock.as_module())
    return Case(clock)


def test_it_is_over_when_the_snapshot_is_durable(case: Case) -> None:
    case.answers = [
        ms.Durability(is_durable=False, why="It takes longer than that."),
        ms.Durability(is_durable=True),
    ]
    assert case.wait_until_durable() == (9, 9, "")
    questions = case.keeper.of(ms.WaitDurable)
    assert [each.snapshot for each in questions] == [Snapshot(run=2, generation=4, step=9)] * 2
    assert case.final_save.sentence(9) == "saved at step 9, nothing is lost"
    assert not case.final_save.is_overdue


def test_time_that_is_over_is_not_exceeded(case: Case) -> None:
    """Then the newest that is durable counts."""
    case.durable_step = 4
    begun_s = case.clock.now_s
    assert case.wait_until_durable() == (9, 4, NOT_IN_TIME)
    assert case.clock.now_s == begun_s + WITHIN_S
    assert case.final_save.is_overdue


def test_log_knows_what_another_nodes_keeper_committed(case: Case) -> None:
    """This one's has not; where neither knows any there is none."""
    case.logged_step = 5
    assert case.wait_until_durable(is_agreed=False) == (9, 5, NOT_AGREED)
    case.logged_step = -1
    assert case.wait_until_durable(is_agreed=False) == (9, -1, NOT_AGREED)


def test_reason_of_the_keeper_is_told_at_once(case: Case) -> None:
    case.answers = [ms.Durability(is_durable=False, why="The bucket is full.")]
    assert case.wait_until_durable(restored_step=3) == (9, 3, "The bucket is full")
    assert not case.final_save.is_overdue


def test_nobody_waits_for_a_snapshot_that_is_not_of_all(case: Case) -> None:
    """Nor for one that this rank could not take."""
    case.durable_step = 6
    assert case.wait_until_durable(is_agreed=False) == (9, 6, NOT_AGREED)
    assert case.wait_until_durable(saved_step=6) == (9, 6, NOT_TAKEN)
    assert not case.keeper.of(ms.WaitDurable)


def test_other_news_ends_the_wait(case: Case) -> None:
    """A world that is to be entered, say."""
    assert case.wait_until_durable(is_wanted=False) == (9, -1, NOT_IN_TIME)
    assert not case.keeper.of(ms.WaitDurable)


def test_keeper_that_is_gone_is_not_asked_for_ever(case: Case) -> None:
    def gone(_: object) -> object:
        raise Unavailable("It has gone.")

    case.keeper.answers[ms.WaitDurable] = case.keeper.answers[ms.GetStatus] = gone
    assert case.wait_until_durable(restored_step=3) == (9, 3, "It has gone")


def test_rank_that_came_to_no_step_says_so(case: Case) -> None:
    assert case.final_save.left(9).why == NOT_AGREED

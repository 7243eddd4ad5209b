"""A step counts whole or not at all, wherever it is interrupted; and what `State` refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.interrupt import Interrupted
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import (
    CASES,
    Case,
    Killer,
    averaged,
    entered,
    facts,
    model,
    plain,
    plain_step,
    same,
    train,
)

POINTS = [
    pytest.param(make, name, step, id=f"{case}-{name}-{step}")
    for case, (make, names) in CASES.items()
    for name in names
    for step in (0, 1, 2)
]


@pytest.mark.parametrize(("make", "name", "step"), POINTS)
def test_step_that_is_interrupted_and_done_again_ends_like_an_undisturbed_one(
    make: Callable[[], Case], name: str, step: int
) -> None:
    """Parameters, buffers, schedulers, scalers, values: equal bit for bit."""
    undisturbed, disturbed = make(), make()
    train(undisturbed)
    killer = Killer(disturbed[0], name, step)
    train(disturbed, at=killer)
    assert killer.has_struck or name == "commit"
    assert same(facts(disturbed[0]), facts(undisturbed[0]))


def test_one_optimizer_pays_for_no_copy_once_its_habits_are_known() -> None:
    """And is then dirty between its step and its commit, which nothing interrupts."""
    state, _ = plain(torch.optim.SGD, lr=0.1)
    with entered(state):
        for _ in range(3):
            plain_step(state, lambda _: None)
        assert all(not undo._copies for undo in core_of(state).guard._undo.values())
        with pytest.raises(Interrupted):
            plain_step(state, Killer(state, "step", 3))
    core_of(state).rollback()
    assert not core_of(state).is_clean
    assert core_of(state).has_stepped


@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("is_secret", [False, True])
def test_large_average_is_put_back_once_it_was_seen_to_change(step: int, is_secret: bool) -> None:
    """By torch's counter, or without one: `.data` is not counted."""
    results = []
    for is_killed in (False, True):
        case = averaged(6000)
        state, step_of = case
        assert next(state.average.parameters()).nbytes > 1 << 16

        def secretly(_: object, state: State = state) -> None:
            ours, theirs = state.average.module.parameters(), state.model.parameters()
            for one, other in zip(ours, theirs, strict=True):
                one.data.mul_(0.5).add_(other.data, alpha=0.5)

        if is_secret:
            state.average.update_parameters = secretly
        killer = Killer(state, "average", step if is_killed else -1)
        train((state, step_of), at=killer)
        assert killer.has_struck == is_killed
        results.append(facts(state))
    assert same(*results)


def test_large_change_without_a_copy_makes_the_rank_dirty_not_wrong() -> None:
    """In the first step of a process nobody knows yet that it changes."""
    state, step = averaged(6000)
    with pytest.raises(Interrupted), entered(state):
        step(state, Killer(state, "average", 0))
    core_of(state).rollback()
    assert not core_of(state).is_clean


def test_half_an_optimizer_step_is_undone_or_leaves_the_rank_dirty() -> None:
    """An exception in the middle of `step()`."""

    class Half(torch.optim.SGD):
        is_broken = False

        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            if self.is_broken:
                raise RuntimeError("out of memory")

    for commits, is_clean in ((1, True), (4, False)):
        net = model()
        state = State(model=net, optimizer=Half(net.parameters(), lr=0.1))
        with entered(state):
            for _ in range(commits):
                plain_step(state, lambda _: None)
            before = facts(state)
            state.optimizer.is_broken = True
            with pytest.raises(RuntimeError):
                plain_step(state, lambda _: None)
            with pytest.raises(CallError, match="half done"):
                state.commit()
        core_of(state).rollback()
        assert core_of(state).is_clean == is_clean
        assert not core_of(state).has_stepped
        if is_clean:
            assert same(facts(state), before)


def test_parameters_that_somebody_else_changed_make_a_rank_dirty() -> None:
    """An evaluation with other weights put in the place of the trained ones."""
    state, _ = plain(torch.optim.SGD, lr=0.1)
    with entered(state):
        for _ in range(3):
            plain_step(state, lambda _: None)
        with torch.no_grad():
            next(state.model.parameters()).zero_()
    core_of(state).rollback()
    assert not core_of(state).is_clean


def test_loading_into_an_optimizer_makes_a_rank_dirty_until_it_commits() -> None:
    """Its state is not that of the last commit, and nobody can bring that back."""
    state, _ = plain(torch.optim.SGD, lr=0.1, momentum=0.9)
    with entered(state):
        for _ in range(3):
            plain_step(state, lambda _: None)
        state.optimizer.load_state_dict(state.optimizer.state_dict())
    core_of(state).rollback()
    assert not core_of(state).is_clean


def test_dirty_rank_whose_state_was_chosen_is_clean_when_it_enters() -> None:
    """There was nobody better: what it has counts now."""
    state, _ = plain(torch.optim.SGD, lr=0.1)
    with entered(state):
        for _ in range(3):
            plain_step(state, lambda _: None)
        with pytest.raises(Interrupted):
            plain_step(state, Killer(state, "step", 3))
    with entered(state):
        assert core_of(state).is_clean
        plain_step(state, lambda _: None)
        assert core_of(state).position == (4, 0)


def test_parameters_that_change_before_every_step_are_copied_at_each_commit() -> None:
    """Sharpness-aware minimization moves them, computes gradients there, and moves them back."""

    def step(state: State, at: Callable[[str], None]) -> None:
        with torch.no_grad():
            for parameter in state.model.parameters():
                parameter.add_(0.1)
        at("moved")
        plain_step(state, at)

    results = []
    for strike in (-1, 3):
        state, _ = plain(torch.optim.SGD, lr=0.1)
        train((state, step), at=Killer(state, "moved", strike))
        results.append(facts(state))
    assert same(*results)


def test_failing_commit_leaves_the_rank_dirty() -> None:
    """Not half clean: neither its copies nor its position may be used."""

    class Failing:
        is_failing = False

        def state_dict(self) -> dict[str, int]:
            if self.is_failing:
                raise ValueError("disk full")
            return {}

        def load_state_dict(self, state: dict[str, int]) -> None:
            pass

    net = model()
    failing = Failing()
    state = State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), extra=failing)
    with entered(state) as watch:
        for _ in range(3):
            plain_step(state, lambda _: None)
        failing.is_failing = True
        with pytest.raises(ValueError, match="disk full"):
            plain_step(state, lambda _: None)
        assert watch.committed_at[-1] == (3, 0)
        assert core_of(state).is_dirty
        assert core_of(state).has_stepped, "nothing of the commit was done"
        assert core_of(state).position == (3, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_of(state).guard, "end_commit", lambda: 1 / 0)
        failing.is_failing = False
        with pytest.raises(ZeroDivisionError), entered(state):
            plain_step(state, lambda _: None)
    core_of(state).rollback()
    assert not core_of(state).is_clean
    assert not core_of(state).has_stepped
    with entered(state):
        assert core_of(state).is_clean, "there was nobody better"

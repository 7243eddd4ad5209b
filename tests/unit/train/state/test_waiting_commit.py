"""A commit without a step, while gradients wait for one, counts with the step or not at all."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import elasticd
from elasticd.train.checkpoints import Checkpoints
from elasticd.train.data.loader import Loader
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import batch, entered, model


def made(**entries: Any) -> State:
    net = model()
    return State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), seen=0, **entries)


def backward(state: State) -> None:
    state.model(batch()).square().mean().backward()
    state.seen = state.seen + 1


def step(state: State) -> None:
    state.optimizer.zero_grad()
    backward(state)
    state.optimizer.step()
    state.commit()


def test_what_was_committed_since_the_last_step_goes_back_with_it() -> None:
    """Steps, values and buffers, so that a step takes as many batches as it would have."""
    state = made()
    with entered(state):
        step(state)
        before = state.model[1].running_mean.clone()
        for _ in range(2):
            backward(state)
            state.commit()
        assert (state.step, state.seen, core_of(state).position) == (3, 3, (1, 0))
    core_of(state).settle_back()
    assert (state.step, state.seen) == (1, 1)
    assert torch.equal(state.model[1].running_mean, before)
    with entered(state):
        backward(state)
        state.commit()
        state.optimizer.step()
        state.commit()
        assert core_of(state).position == (3, 0)


def test_gradients_that_a_step_has_used_hold_no_commit() -> None:
    """They lie there until the next `zero_grad`: but for the first time that is known."""
    state = made()
    with entered(state):
        for is_known in (False, True):
            step(state)
            at = state.step
            for number in range(3):
                state.seen = state.seen + 1
                state.commit()
                assert core_of(state).position == (at + (number + 1) * is_known, 0)


@pytest.mark.parametrize("is_read", [False, True])
def test_epoch_without_gradients_that_wait_ends_as_it_ends(is_read: bool) -> None:
    """An evaluation may have read from a Loader: for the first time that holds the end up."""
    state = made(data=Loader(torch.arange(4.0), 2), more=Loader(torch.arange(4.0), 2))
    with entered(state):
        for epoch in state.epochs(3):
            assert core_of(state).position[1] == (0 if is_read and epoch == 1 else epoch)
            for _ in state.data:
                step(state)
            if is_read:
                list(state.more)
    assert core_of(state).position == (6, 3)


def test_last_snapshot_before_a_planned_change_is_of_the_last_step() -> None:
    """Though all ranks agreed to leave after a commit that waits."""
    state: State = made()
    core = core_of(state)
    session: Any = SimpleNamespace(final_save=object())
    checkpoints = Checkpoints(WorkerSettings.read({}), core, session)
    taken: list[tuple[int, int]] = []
    saving: Any = SimpleNamespace(
        take_last=lambda at: taken.append((at, state.seen)), end=lambda: None
    )
    checkpoints._saving = saving
    with entered(state):
        step(state)
        backward(state)
        state.commit()
        checkpoints.end(is_agreed=True)
    assert taken == [(1, 1)]


def test_run_that_ends_while_gradients_wait_has_counted_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No step will use them, with or without a failure."""
    state = made(data=Loader(torch.arange(10.0), 2))

    def train(state: State, world: object) -> None:
        for _ in state.epochs(1):
            for index, _ in enumerate(state.data):
                backward(state)
                if index % 2:
                    state.optimizer.step()
                    state.optimizer.zero_grad()
                state.commit()

    elasticd.run(train, state)
    assert "10 samples (0 repeated, 0 skipped)" in capsys.readouterr().out
    assert core_of(state).position == (state.step, state.epoch) == (5, 1)

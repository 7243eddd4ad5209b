"""What a script does to parameters as an epoch begins is undone, though it does so seldom."""

from collections.abc import Callable

import pytest
import torch

from elasticd.train.optimizer import step_guard
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import (
    At,
    FakeWatch,
    Killer,
    entered,
    facts,
    model,
    plain_step,
    same,
    train,
)

STEPS_OF_EPOCH, EPOCHS, KILLED_IN = 11, 3, 2 * 11


def made() -> State:
    net = model()
    return State(model=net, optimizer=torch.optim.Adam(net.parameters(), lr=0.1))


def made_anew(state: State) -> None:
    """The last layer begins anew, and the moments with it."""
    with torch.no_grad():
        state.model[3].weight.fill_(0.1)
    state.optimizer.state.clear()


def scaled(state: State) -> None:
    """All of it, past the counters of torch."""
    for each in state.model.parameters():
        each.data.mul_(0.5)


def loaded(state: State) -> None:
    """Another state of the optimizer."""
    state.optimizer.load_state_dict({**state.optimizer.state_dict(), "state": {}})


def trained(change: Callable[[State], object]) -> tuple[State, Callable[[State, At], None]]:
    """A training in epochs whose third begins with a change."""

    def epochs(state: State, at: At) -> None:
        for epoch in state.epochs(EPOCHS):
            if epoch == EPOCHS - 1 and state.step == KILLED_IN:
                change(state)
            while state.step < (epoch + 1) * STEPS_OF_EPOCH:
                plain_step(state, at)

    return made(), epochs


@pytest.mark.parametrize("point", ["begin", "forward", "backward", "step"])
@pytest.mark.parametrize("change", [made_anew, scaled, loaded])
def test_change_as_an_epoch_begins_is_made_once(
    change: Callable[[State], object], point: str
) -> None:
    undisturbed, state = trained(change), trained(change)
    steps = EPOCHS * STEPS_OF_EPOCH
    train(undisturbed, steps=steps)
    assert train(state, at=Killer(state[0], point, KILLED_IN), steps=steps) == 1
    assert same(facts(state[0]), facts(undisturbed[0]))


def test_large_model_is_not_copied_as_an_epoch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_guard, "COPY_LIMIT_BYTES", 0)
    state, watch = made(), FakeWatch()
    with entered(state, watch):
        for epoch in state.epochs(2):
            if epoch:
                assert not core_of(state).guard._is_copied
            while state.step < (epoch + 1) * STEPS_OF_EPOCH:
                plain_step(state, lambda _: None)

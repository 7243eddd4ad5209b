"""A value in the memory of an optimizer's state is refused at the commit that sees it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.state.state import State
from tests.unit.train.state.state_case import entered
from tests.unit.train.sync.test_tied_entries import heal

Moment = torch.Tensor

KEPT: dict[str, Callable[[Moment], object]] = {
    "itself": lambda moment: moment,
    "a part of it": lambda moment: moment[:1],
    "its data": lambda moment: moment.data,
    "in a list": lambda moment: [0, moment],
    "in a dict": lambda moment: {"of": (moment,)},
}


def made() -> Any:
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters())
    return State(model=net, optimizer=optimizer, kept=torch.zeros(2, 3))


def step(state: Any) -> Moment:
    state.optimizer.zero_grad()
    state.model(torch.ones(2, 3)).square().mean().backward()
    state.optimizer.step()
    moment: Moment = state.optimizer.state[state.model.weight]["exp_avg"]
    return moment


@pytest.mark.parametrize("kept", KEPT)
def test_value_in_the_memory_of_a_moment_is_refused(kept: str) -> None:
    """It would have the numbers of that moment for ever on a new rank."""
    state = made()
    with entered(state):
        for _ in range(3):
            step(state)
            state.commit()
        state.kept = KEPT[kept](step(state))
        with pytest.raises(CallError, match=r"state\.kept.* the exp_avg of AdamW, .* clone\(\)"):
            state.commit()


def test_value_that_is_a_copy_of_a_moment_is_taken() -> None:
    """Also one in memory that a moment had before."""
    state = made()
    with entered(state):
        step(state)
        state.commit()
        moments = state.optimizer.state[state.model.weight]
        old = step(state)
        moments["exp_avg"] = old.clone()
        state.kept = old
        state.commit()
        state.kept = moments["exp_avg"].clone()
        state.commit()


def test_value_of_a_model_that_is_trained_in_a_built_optimizer_is_refused() -> None:
    """A function of `world` makes its optimizer anew, and the value would stay where it is."""
    net = torch.nn.Linear(3, 2)
    state: Any = State(
        model=net, optimizer=lambda world: torch.optim.SGD(net.parameters(), 0.1, 0.9), kept=None
    )
    with entered(state):
        step_of_sgd(state)
        state.kept = state.optimizer.state[net.weight]["momentum_buffer"]
        with pytest.raises(CallError, match=r"state\.kept is in the memory of the momentum_buffer"):
            state.commit()


def step_of_sgd(state: Any) -> None:
    state.model(torch.ones(2, 3)).square().mean().backward()
    state.optimizer.step()


def of_tensor_rate(*, is_kept: bool) -> Any:
    net = torch.nn.Linear(3, 2)
    rate = torch.tensor(0.1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
    return State(model=net, optimizer=optimizer, rate=rate if is_kept else None)


def test_learning_rate_that_train_makes_a_value_is_refused() -> None:
    """The optimizer of a new rank would not see what is written into it."""
    state = of_tensor_rate(is_kept=False)
    with entered(state):
        step(state)
        state.commit()
        state.rate = state.optimizer.param_groups[0]["lr"]
        with pytest.raises(CallError, match=r"state\.rate is in the memory of the lr of AdamW"):
            state.commit()


def test_learning_rate_that_is_a_value_from_the_beginning_stays_one() -> None:
    """Each process makes it so; a state is loaded into both places."""
    source, target = of_tensor_rate(is_kept=True), of_tensor_rate(is_kept=True)
    for state in (source, target):
        with entered(state):
            step(state)
            state.rate.mul_(0.5)
            state.commit()
    heal(source, target)
    assert target.rate is target.optimizer.param_groups[0]["lr"]
    with entered(target):
        target.rate.mul_(0.5)
        step(target)
        target.commit()
    assert target.optimizer.param_groups[0]["lr"].item() == pytest.approx(0.025)

"""An optimizer whose step is made of another one's: what the inner one keeps is state, too."""

from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.interrupt import Interrupted
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import Killer, entered, facts, model, same, train


class Sharpened(torch.optim.Optimizer):
    """Steps uphill, asks for the gradients there, steps back, and then as its inner one does."""

    def __init__(self, parameters: Any, momentum: float) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.inner = torch.optim.SGD(self.param_groups, lr=0.1, momentum=momentum)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        parameters = [each for group in self.param_groups for each in group["params"]]
        for each in parameters:
            self.state[each]["old"] = each.clone()
            each.add_(each.grad, alpha=0.05)
        with torch.enable_grad():
            closure()
        for each in parameters:
            each.copy_(self.state[each]["old"])
        self.inner.step()


def state_of(momentum: float, *, is_whole: bool) -> State:
    net = model()
    outer = Sharpened(net.parameters(), momentum)
    inner: dict[str, Any] = {"inner": outer.inner} if is_whole else {}
    return State(model=net, outer=outer, **inner)


def step(state: State, at: Any) -> None:
    def closure() -> None:
        state.model.zero_grad()
        state.model(torch.randn(6, 4)).square().mean().backward()
        at("backward")

    closure()
    state.outer.step(closure)
    at("step")
    state.commit()


def test_momentum_that_nobody_saves_is_refused_in_the_first_step() -> None:
    """A rank that is replaced would begin with none, and train other parameters than the rest."""
    state = state_of(0.9, is_whole=False)
    with entered(state), pytest.raises(CallError, match=r"give State\(\.\.\.\) that SGD, too"):
        step(state, lambda _: None)


def test_inner_optimizer_that_keeps_nothing_needs_no_entry() -> None:
    with entered(state := state_of(0.0, is_whole=False)):
        step(state, lambda _: None)
        assert state.step == 1


@pytest.mark.parametrize("place", ["backward", "step"])
@pytest.mark.parametrize("number", range(5))
def test_step_within_a_step_is_undone_with_it(place: str, number: int) -> None:
    """Both are in the state: neither the momentum nor the parameters keep a part of the step."""
    calm = state_of(0.9, is_whole=True), step
    train(calm)
    state = state_of(0.9, is_whole=True)
    train((state, step), at=Killer(state, place, number))
    assert same(facts(state), facts(calm[0]))


def test_what_is_too_large_for_a_copy_at_the_start_is_undone_too() -> None:
    """The inner one is copied before its own step."""
    state = state_of(0.9, is_whole=True)
    with entered(state) as watch:
        step(state, lambda _: None)
        before = facts(state)
        core_of(state).guard._is_copied = False
        watch.collectives += 1
        with pytest.raises(Interrupted):
            step(state, Killer(state, "step", 1))
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)

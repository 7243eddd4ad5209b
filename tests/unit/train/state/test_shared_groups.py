"""Two optimizers with the same parameter groups have the same ones after a load, too.

A scheduler writes to the groups of the one that it was made for. Where the other's are copies of
its own, its learning rate stays what it was, on the rank that loaded and on no other.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.train.state.optimizer_load import load_optimizer
from elasticd.train.state.state import State, core_of
from tests.unit.train.optimizer.test_inner_optimizer import Sharpened
from tests.unit.train.state.state_case import entered, facts, model, plain_step, same


class OfOneList(Sharpened):
    """As most are written: both have one list, and the outer one hands it on when it has loaded."""

    def __init__(self, parameters: Any, momentum: float) -> None:
        super().__init__(parameters, momentum)
        self.param_groups = self.inner.param_groups

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self.inner.param_groups = self.param_groups


class SavesBoth(Sharpened):
    """Its state has that of the inner one in it."""

    def state_dict(self) -> Any:
        return super().state_dict() | {"inner": self.inner.state_dict()}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self.inner.load_state_dict(state_dict["inner"])


class Handing(torch.optim.Optimizer):
    """Its step is another one's, and so is all that it keeps."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state

    def step(self, closure: Any = None) -> Any:
        return self.inner.step()


def test_state_that_two_optimizers_share_is_shared_after_a_load() -> None:
    """Else the one that steps would have none on a new rank, which `commit` refuses."""

    def made() -> State:
        net = model()
        inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        return State(model=net, optimizer=Handing(inner))

    state, other = made(), made()
    with entered(state):
        for _ in range(3):
            plain_step(state, lambda _: None)
    core_of(other).load(copy.deepcopy(core_of(state).tree()), core_of(state).position)
    assert other.optimizer.state is other.optimizer.inner.state
    for each in (state, other):
        with entered(each):
            for _ in range(3):
                plain_step(each, lambda _: None)
    assert same(facts(other), facts(state))


class Wrapper:
    """No optimizer, but it saves one."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> Any:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


def halved(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


def outer_first(kind: type[Sharpened]) -> State:
    net = model()
    outer = kind(net.parameters(), 0.9)
    return State(model=net, outer=outer, inner=outer.inner, schedule=halved(outer))


def inner_first() -> State:
    net = model()
    outer = Sharpened(net.parameters(), 0.9)
    return State(schedule=halved(outer.inner), inner=outer.inner, outer=outer, model=net)


def without_the_inner_one(kind: type[Sharpened], momentum: float = 0.0) -> State:
    """What keeps nothing needs no entry."""
    net = model()
    outer = kind(net.parameters(), momentum)
    return State(model=net, outer=outer, schedule=halved(outer))


def within_a_wrapper() -> State:
    net = model()
    outer = Sharpened(net.parameters(), 0.9)
    return State(model=net, outer=outer, wrapped=Wrapper(outer.inner), schedule=halved(outer))


def built_for_a_world() -> State:
    net = model()

    made: list[State] = []

    def outer(_: object) -> Sharpened:
        return Sharpened(net.parameters(), 0.9)

    def inner(_: object) -> Any:
        return made[0].outer.inner

    made += [State(model=net, outer=outer, inner=inner, schedule=lambda _: halved(made[0].outer))]
    return made[0]


CASES: dict[str, Callable[[], State]] = {
    "of one list": lambda: outer_first(OfOneList),
    "of two lists": lambda: outer_first(Sharpened),
    "inner first": inner_first,
    "inner one keeps nothing": lambda: without_the_inner_one(OfOneList),
    "within a wrapper": within_a_wrapper,
    "built for a world": built_for_a_world,
}


def step(state: State) -> None:
    def closure() -> None:
        state.model.zero_grad()
        state.model(torch.randn(6, 4)).square().mean().backward()

    closure()
    state.outer.step(closure)
    state.schedule.step()
    state.commit()


def go(state: State, steps: int) -> State:
    with entered(state):
        for _ in range(steps):
            step(state)
    return state


def moved(source: State, target: State) -> None:
    core_of(target).load(copy.deepcopy(core_of(source).tree()), core_of(source).position)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("had_steps", [0, 1], ids=["new", "old"])
def test_rank_that_loads_steps_as_its_source(case: Callable[[], State], had_steps: int) -> None:
    """Heals and restores load in the same way; the scheduler reaches what it reached before."""
    source, target = go(case(), 2), go(case(), had_steps) if had_steps else case()
    moved(source, target)
    for state in (source, target):
        go(state, 2)
    inner = [state.outer.inner.param_groups[0]["lr"] for state in (source, target)]
    assert inner == [0.1 / 16, 0.1 / 16]
    assert same(facts(target), facts(source))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rank_that_goes_back_steps_as_one_that_was_not_disturbed(case: Callable[[], State]) -> None:
    state = go(case(), 2)
    core_of(state).rollback()
    assert same(facts(go(state, 2)), facts(go(case(), 4)))


def test_outer_one_that_saves_the_inner_one_loads_it_in_its_place() -> None:
    """With momentum too, and no entry of its own: its state is in that of the outer one."""
    nets = model(), model()
    source, target = (SavesBoth(each.parameters(), 0.9) for each in nets)
    source.param_groups[0]["lr"] = 0.3
    load_optimizer(target, copy.deepcopy(source.state_dict()))
    assert target.inner.param_groups[0] is target.param_groups[0]
    assert target.inner.param_groups[0]["lr"] == 0.3


def test_groups_that_load_are_the_same_objects() -> None:
    """Whoever holds one of them, or a learning rate that is a tensor, sees what was loaded."""
    optimizer = torch.optim.Adam(model().parameters(), lr=torch.tensor(0.1), capturable=True)
    every, group, rate = (groups := optimizer.param_groups), groups[0], groups[0]["lr"]
    state = optimizer.state_dict()
    state["param_groups"][0] |= {"lr": torch.tensor(0.5), "betas": (0.5, 0.5)}
    load_optimizer(optimizer, state)
    assert optimizer.param_groups is every
    assert every[0] is group
    assert group["lr"] is rate
    assert (rate.item(), group["betas"]) == (0.5, (0.5, 0.5))


def test_script_that_loads_by_itself_has_to_share_them_again() -> None:
    """In restart mode it calls torch's own load_state_dict, which is what the page says of it."""
    saved, made = go(outer_first(Sharpened), 2), outer_first(Sharpened)
    for name in ("model", "outer", "inner", "schedule"):
        getattr(made, name).load_state_dict(copy.deepcopy(getattr(saved, name).state_dict()))
    assert made.inner.param_groups[0] is not made.outer.param_groups[0]
    made.inner.param_groups = made.outer.param_groups
    made.schedule.step()
    assert made.inner.param_groups[0]["lr"] == 0.1 / 8

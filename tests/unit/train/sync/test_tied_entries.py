"""A rank that takes over a state has the same entries in one tensor as the rank that gives it."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.state.state import State, core_of
from elasticd.train.sync.newest_state import SourceDecision
from elasticd.train.sync.state_fetch import fetch_state
from tests.fixtures.patience import patience_s
from tests.unit.train.state.state_case import entered, facts, same
from tests.unit.train.sync.test_state_fetch import OneOfTwo, SharedStore

WAIT_S = patience_s(30.0)
MUCH = 300_000
"""Elements of more than one piece that is compared, so that a source and a target have both."""


def heal(source: State, target: State) -> None:
    store = SharedStore()
    decision = SourceDecision(position=core_of(source).position, sources=(0,), targets=(1,))
    giving = threading.Thread(
        target=fetch_state, args=(OneOfTwo(0, store), decision, core_of(source))
    )
    giving.start()
    fetch_state(OneOfTwo(1, store), decision, core_of(target))
    giving.join(WAIT_S)


def trained(made: Callable[[], State], change: Callable[[State], None]) -> State:
    """Return a state in which the script has made a change, and which was committed then."""
    state = made()
    with entered(state):
        change(state)
        state.commit()
    return state


def add_to(state: State, name: str) -> None:
    with entered(state):
        getattr(state, name).add_(1)
        state.commit()


def of_one_tensor() -> State:
    tensor = torch.zeros(MUCH)
    return State(now=tensor, best=tensor)


def of_two_tensors() -> State:
    return State(now=torch.zeros(MUCH), best=torch.ones(MUCH))


def bind_apart(state: State) -> None:
    state.now.add_(1)
    state.best = state.now * 5


def bind_together(state: State) -> None:
    state.best = state.now


@pytest.mark.parametrize(
    ("made", "change"), [(of_one_tensor, bind_apart), (of_two_tensors, bind_together)]
)
def test_values_are_one_tensor_on_a_new_rank_where_they_are_on_its_source(
    made: Callable[[], State], change: Callable[[State], None]
) -> None:
    source, target = trained(made, change), made()
    heal(source, target)
    assert same(facts(target), facts(source))
    for state in (source, target):
        add_to(state, "now")
    assert same(facts(target), facts(source))


def test_values_that_are_new_on_the_source_are_one_tensor_on_a_new_rank() -> None:
    """It had no place for them; also within lists and tuples."""

    def made() -> State:
        return State(now=None, best=(None, [None]))

    def change(state: State) -> None:
        state.now = torch.zeros(3)
        state.best = (state.now, [state.now])

    source, target = trained(made, change), made()
    heal(source, target)
    for state in (source, target):
        add_to(state, "now")
    assert target.best[0] is target.best[1][0] is target.now
    assert same(facts(target), facts(source))


def test_rank_that_is_behind_ties_again_what_the_script_began_with() -> None:
    """It has bound apart what the rank that counts has not."""
    source, target = trained(of_one_tensor, lambda _: None), trained(of_one_tensor, bind_apart)
    heal(source, target)
    assert target.best is target.now
    assert same(facts(target), facts(source))


def test_value_that_was_a_parameter_leaves_the_parameter_as_it_is() -> None:
    """It is bound to another tensor; the optimizer goes on to train the parameter."""

    def made() -> State:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 1)
        return State(model=net, kept=net.weight, optimizer=torch.optim.SGD(net.parameters(), 0.1))

    def change(state: State) -> None:
        state.kept = torch.full((1, 3), 7.0)

    source, target = trained(made, change), made()
    heal(source, target)
    assert target.model.weight is target.optimizer.param_groups[0]["params"][0]
    assert same(facts(target), facts(source))


def test_value_that_is_trained_stays_the_one_that_its_optimizer_trains() -> None:
    """The other one of two that began as one parameter, though it comes first."""

    def made() -> State:
        parameter = torch.nn.Parameter(torch.zeros(3))
        return State(old=parameter, new=parameter, optimizer=torch.optim.SGD([parameter], 0.1))

    def change(state: State) -> None:
        state.old = torch.full((3,), 7.0)

    source, target = trained(made, change), made()
    heal(source, target)
    assert target.new is target.optimizer.param_groups[0]["params"][0]
    assert same(facts(target), facts(source))


def bind_alias(state: State) -> None:
    state.kept = state.model.weight.detach()


def bind_parameter(state: State) -> None:
    state.kept = state.model.weight


@pytest.mark.parametrize("began", ["nothing", "a tensor", "the parameter", "an alias"])
@pytest.mark.parametrize("change", [bind_alias, bind_parameter])
def test_alias_of_a_parameter_has_a_gradient_where_it_has_one_on_its_source(
    change: Callable[[State], None], began: str
) -> None:
    """A loss that reads `weight.detach()` would train the weight otherwise on a new rank."""

    def made() -> State:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 1)
        first = {
            "nothing": None,
            "a tensor": torch.zeros(1, 3),
            "the parameter": net.weight,
            "an alias": net.weight.detach(),
        }
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        return State(model=net, kept=first[began], optimizer=optimizer)

    source, target = trained(made, change), made()
    heal(source, target)
    for state in (source, target):
        with entered(state):
            (state.model(torch.ones(2, 3)) * state.kept.sum()).mean().backward()
            state.optimizer.step()
            state.commit()
    assert same(facts(target), facts(source))
    assert target.kept.requires_grad is source.kept.requires_grad


def test_number_of_numpy_in_a_list_computes_alike_on_a_new_rank() -> None:
    """One of Python would be rounded to float64 only."""

    def made() -> State:
        return State(mean=[0.0], lowest={})

    def change(state: State) -> None:
        state.mean[0] = np.float32(0.1)
        state.lowest["loss"] = np.float32(0.3)

    source, target = trained(made, change), made()
    heal(source, target)
    for state in (source, target):
        with entered(state):
            state.mean[0] = state.mean[0] * 3 + state.lowest["loss"]
            state.commit()
    assert type(target.mean[0]) is np.float32
    assert same(facts(target), facts(source))
    assert target.mean == source.mean


class Two(torch.nn.Module):
    """Two parts that begin with one buffer."""

    def __init__(self) -> None:
        super().__init__()
        shared = torch.zeros(3)
        self.one, self.other = torch.nn.Module(), torch.nn.Module()
        self.one.register_buffer("seen", shared)
        self.other.register_buffer("seen", shared)


def bind_buffer_apart(state: State) -> None:
    state.model.other.seen = torch.full((3,), 2.0)


def test_buffer_that_one_of_two_modules_has_exchanged_is_exchanged_on_a_new_rank() -> None:
    source, target = trained(lambda: State(model=Two()), bind_buffer_apart), State(model=Two())
    heal(source, target)
    assert same(facts(target), facts(source))
    assert target.model.one.seen.tolist() == [0.0] * 3


def test_source_with_the_ties_of_the_script_tells_nothing_of_them() -> None:
    """Older versions know nothing of them."""
    assert "_ties" not in core_of(trained(of_one_tensor, lambda _: None)).tree().skeleton
    assert "_ties" in core_of(trained(of_one_tensor, bind_apart)).tree().skeleton


def test_another_tensor_in_the_place_of_a_trained_parameter_is_refused() -> None:
    """The optimizer trains what nobody uses, and on a new rank it would train what is used."""
    net: Any = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    net[1].weight = net[0].weight
    state: Any = State(model=net, optimizer=torch.optim.SGD(net.parameters(), 0.1))
    with entered(state):
        state.commit()
        net[1].weight = torch.nn.Parameter(net[0].weight.detach().clone())
        with pytest.raises(CallError, match=r"state\.model\.1\.weight is another tensor in train"):
            state.commit()

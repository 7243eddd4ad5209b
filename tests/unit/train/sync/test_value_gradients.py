"""A value that requires a gradient does so on a rank that gets the state; a graph is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import entered, facts, same
from tests.unit.train.sync.test_tied_entries import heal, trained


def leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def frozen() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(3), requires_grad=False)


MADE: dict[str, Callable[[], torch.Tensor]] = {
    "a leaf": leaf,
    "a Parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "a frozen Parameter": frozen,
    "a tensor": lambda: torch.ones(3),
}
BEGAN: dict[str, Callable[[], object]] = {
    **MADE,
    "None": lambda: None,
    "whole numbers": lambda: torch.zeros(5, dtype=torch.int64),
}


def step(state: State) -> None:
    """Make a step of the script's own, over what the state has as `at`."""
    with entered(state):
        at: Any = state.at
        if at.requires_grad:
            (at.square().sum() * 3).backward()
            with torch.no_grad():
                at -= 0.1 * at.grad
            at.grad = None
        state.commit()


@pytest.mark.parametrize("began", BEGAN)
@pytest.mark.parametrize("made", MADE)
def test_value_of_train_requires_a_gradient_on_a_new_rank_as_on_its_source(
    made: str, began: str
) -> None:
    """Without it a backward pass over it raises there, or trains nothing."""

    def new() -> State:
        return State(at=BEGAN[began](), kept=[None, {}])

    def change(state: State) -> None:
        state.at = MADE[made]()
        state.kept[0] = state.at
        state.kept[1]["other"] = MADE[made]()

    source, target = trained(new, change), new()
    heal(source, target)
    pairs = [
        (source.at, target.at),
        (source.kept[0], target.kept[0]),
        (source.kept[1]["other"], target.kept[1]["other"]),
    ]
    for one, other in pairs:
        assert type(other) is type(one) and other.requires_grad is one.requires_grad
        assert other.is_leaf
    assert target.kept[0] is target.at
    for state in (source, target):
        step(state)
    assert same(facts(target), facts(source))


def test_rank_that_is_behind_has_the_gradients_with_which_the_script_began() -> None:
    """It has frozen what the rank that counts trains."""

    def freeze(state: State) -> None:
        state.at.requires_grad_(False)

    def new() -> State:
        return State(at=leaf())

    source, target = trained(new, lambda _: None), trained(new, freeze)
    assert "_leaves" not in core_of(source).tree().skeleton
    heal(source, target)
    assert target.at.requires_grad


def test_source_of_an_older_version_tells_nothing_of_gradients() -> None:
    """What it sends is taken as before."""

    def change(state: State) -> None:
        state.at = leaf()

    source, target = trained(lambda: State(at=None), change), State(at=None)
    tree = core_of(source).tree()
    older = tree.skeleton.replace('"_leaves"', '"_older"')
    sent = tuple(each.detach().clone() for each in tree.tensors)
    core_of(target).load(type(tree)(older, sent), core_of(source).position)
    assert target.at.tolist() == source.at.tolist()
    assert not target.at.requires_grad


def test_value_with_a_graph_is_refused_where_it_is_given() -> None:
    """Whatever was computed with it would have no gradient on a new rank."""
    loss = leaf().square().sum()
    with pytest.raises(CallError, match=r"State\(best=\.\.\.\) was computed .* detach\(\)"):
        State(best=loss)
    state: Any = State(best=None, losses=[])
    with entered(state):
        with pytest.raises(CallError, match=r"state\.best was computed from what requires"):
            state.best = loss
        state.best = loss.detach()
        state.commit()
        with pytest.raises(CallError, match=r"state\.losses\[1\] was computed"):
            state.losses = [0.0, loss]


def test_value_that_gets_a_graph_in_its_place_is_refused_at_the_next_commit() -> None:
    """No assignment of the state's own shows it."""
    loss = leaf().square().sum()
    state: Any = State(losses=[], mean=torch.zeros(()))
    with entered(state):
        for _ in range(5):
            state.commit()
        state.losses.append(loss)
        with pytest.raises(CallError, match=r"state\.losses\[0\] was computed"):
            state.commit()
        state.losses.clear()
        state.commit()
        state.mean.add_(loss)
        with pytest.raises(CallError, match=r"state\.mean was computed"):
            state.commit()

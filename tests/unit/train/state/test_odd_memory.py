"""Tensors whose elements do not stand side by side in memory of their own."""

import copy
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.state.flat_copy import bundled
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import At, Killer, entered, plain_step, train


def with_buffer(tensor: torch.Tensor, *, is_saved: bool) -> State:
    net = torch.nn.Linear(4, 1)
    net.register_buffer("odd", tensor, persistent=is_saved)
    return State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))


def large() -> torch.Tensor:
    """A matrix whose numbers take more than what is copied at each commit."""
    diagonal = torch.arange(9000).expand(2, -1)
    return torch.sparse_coo_tensor(diagonal, torch.ones(9000, dtype=torch.float64)).coalesce()


def numbers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.values() if tensor.layout is torch.sparse_csr else tensor._values()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("size", ["small", "large"])
def test_sparse_buffer_that_no_state_has_is_put_back(size: str, layout: torch.layout) -> None:
    """The neighbours of a graph, say. What a step that never was did to it is undone."""
    matrix = large() if size == "large" else torch.eye(4)
    state = with_buffer(matrix.to_sparse(layout=layout), is_saved=False)

    def step(state: State, at: At) -> None:
        numbers(state.model.odd).add_(1)
        plain_step(state, at)

    train((state, step), at=Killer(state, "backward", 3))
    assert numbers(state.model.odd).eq(6).all()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_value_is_refused_with_its_name() -> None:
    """It has no shape, which no part of a state says but an error of torch's."""
    state = State(odd=None)
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    with entered(state), pytest.raises(CallError, match=r"state\.odd is a tensor without ordinary"):
        state.odd = nested


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("is_saved", [True, False])
def test_nested_buffer_is_refused_with_its_name(is_saved: bool, layout: torch.layout) -> None:
    """Also one that no state has: a commit copies it."""
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=layout)
    sentence = r"State\(model=\.\.\.\) has a odd that is a nested tensor"
    with pytest.raises(CallError, match=sentence):
        with_buffer(nested, is_saved=is_saved)
    state = with_buffer(torch.ones(1), is_saved=is_saved)
    with entered(state):
        state.model.odd = nested
        with pytest.raises(CallError, match=sentence):
            state.commit()


@pytest.mark.parametrize("shape", [(5,), (2, 5)])
def test_expanded_buffer_travels(shape: tuple[int, ...]) -> None:
    """A new process has it expanded too, and there is no place in it for five numbers."""
    source, target = (
        with_buffer(torch.full((1,), value).expand(shape), is_saved=True) for value in (3.0, 0.0)
    )
    train((source, plain_step))
    core_of(target).load(copy.deepcopy(core_of(source).tree()), core_of(source).position)
    assert torch.equal(target.model.odd, torch.full(shape, 3.0))
    train((target, plain_step), steps=7)


def test_expanded_value_travels() -> None:
    source, target = (State(odd=torch.full((1,), value).expand(4)) for value in (3.0, 0.0))
    core_of(target).load(copy.deepcopy(core_of(source).tree()), core_of(source).position)
    assert torch.equal(target.odd, torch.full((4,), 3.0))
    with entered(target):
        target.commit()


def test_matrix_of_another_type_takes_other_memory() -> None:
    """A copy in float32 would round it."""
    matrix = torch.zeros(2, 2)
    _, (copied,) = bundled([matrix])
    assert copied.copy()
    matrix.data = torch.zeros(2, 2, dtype=torch.float64)
    assert not copied.copy()


@pytest.mark.parametrize("commits", [0, 2])
def test_value_that_no_look_ends_is_refused_with_its_name(commits: int) -> None:
    """Also between the commits that look at everything."""
    looped: list[Any] = []
    looped.append(looped)
    shapeless = torch.nn.UninitializedParameter()
    for value, said in ((looped, "nested deeper than 100"), (shapeless, "from the first batch")):
        state: Any = State(kept=[])
        with entered(state):
            for _ in range(commits):
                state.commit()
            state.kept.append(value)
            with pytest.raises(CallError, match=rf"state\.kept\[0\].* {said}"):
                state.commit()

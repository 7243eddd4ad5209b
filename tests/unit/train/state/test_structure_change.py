"""What a process that replaces a rank would have no place for is refused before a failure."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.utils import prune

from elasticd.errors import CallError
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import At, model, plain_step, train


class Caching(torch.nn.Module):
    """Makes a buffer in its first forward pass."""

    def __init__(self, *, is_saved: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
        self._is_saved = is_saved

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if "cache" not in self._buffers:
            self.register_buffer("cache", torch.zeros(3), persistent=self._is_saved)
        return self.linear(rows)  # type: ignore[no-any-return]


class Growing(Caching):
    """Its buffer gets another shape."""

    def __init__(self) -> None:
        super().__init__(is_saved=True)
        self.register_buffer("cache", torch.zeros(2))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.cache = torch.zeros(3)
        return self.linear(rows)  # type: ignore[no-any-return]


def made(net: torch.nn.Module) -> State:
    state = State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    core_of(state).check()  # As `run` does it.
    return state


def test_buffer_of_the_first_forward_pass_is_refused_at_the_first_commit() -> None:
    state = made(Caching(is_saved=True))
    with pytest.raises(CallError, match=r"model\.cache float32 \[3\]"):
        train((state, plain_step), steps=1)
    assert state.step == 0


def test_buffer_that_no_state_has_may_come_in_training() -> None:
    train((made(Caching(is_saved=False)), plain_step))


def test_buffer_that_gets_another_shape_is_refused() -> None:
    with pytest.raises(CallError, match=r"\[3\]` where .* has `model\.cache float32 \[2\]"):
        train((made(Growing()), plain_step), steps=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda net: prune.l1_unstructured(net[0], "weight", amount=2),  # type: ignore[no-untyped-call]
        lambda net: net.append(torch.nn.BatchNorm1d(1, affine=False)),
        lambda net: setattr(net[1], "num_batches_tracked", torch.zeros((), dtype=torch.int32)),
    ],
    ids=["pruned", "module added", "another type"],
)
def test_module_that_is_changed_later_is_refused_by_the_next_look(
    change: Callable[[torch.nn.Module], object],
) -> None:
    """The commits 1, 2, 4, 8, ... look."""
    state = made(model())

    def step(state: State, at: At) -> None:
        plain_step(state, at)
        if state.step == 2:
            change(state.model)

    with pytest.raises(CallError, match="The structure of the state has changed in train"):
        train((state, step), steps=8)
    assert state.step < 4

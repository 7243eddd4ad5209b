"""What a process that replaces a rank would have no place for is refused before a failure."""

from collections.abc import Callable
from typing import Never

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.nn.utils import prune

from elasticd.errors import CallError
from elasticd.train.commit_hook import commit_hook
from elasticd.train.introspection import structure_change
from elasticd.train.introspection.structure_change import StructureChanged
from elasticd.train.introspection.unsaved_attributes import UnsavedAttributes
from elasticd.train.state.state import State, core_of
from elasticd.train.world import World
from tests.unit.train.state.state_case import At, entered, model, plain_step, train, world


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


def test_each_commit_of_a_generation_looks_if_a_look_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where no power of two comes for long."""
    monkeypatch.setattr(structure_change, "PERIOD_S", 0.0)
    monkeypatch.setattr(structure_change, "SHARE", float("inf"))
    state = made(model())
    core = core_of(state)
    with entered(state):
        hook = commit_hook(
            HashStore(),
            world(),
            core,
            is_over=lambda: False,
            every=None,
            unsaved=UnsavedAttributes(),
            save=None,
        )
        assert hook is not None
        for _ in range(2):
            plain_step(state, lambda _: None)
            hook(state.step)
        state.model.append(torch.nn.BatchNorm1d(1, affine=False))
        plain_step(state, lambda _: None)
        with pytest.raises(StructureChanged, match=r"The structure of the state has changed"):
            hook(state.step)
    assert state.step == 3


def built(make: Callable[[World], torch.nn.Module]) -> State:
    """A state whose model is built by a function of `world`."""
    state = State(model=make)
    core_of(state).check()
    return state


def caching(is_saved: bool) -> Callable[[World], torch.nn.Module]:
    return lambda _: Caching(is_saved=is_saved)


def test_what_a_function_of_world_has_built_may_not_change_either() -> None:
    """It is built anew in the next world, without what `train` has added."""
    state = built(caching(True))
    with entered(state):
        state.model(torch.zeros(1, 4))
        with pytest.raises(StructureChanged, match=r"model\.cache .* in the function of `world`"):
            state.commit()
    assert state.step == 0


def test_buffer_that_no_state_has_may_come_in_what_was_built() -> None:
    state = built(caching(False))
    for _ in range(2):
        with entered(state):
            state.model(torch.zeros(1, 4))
            state.commit()
    assert state.step == 2


@pytest.mark.parametrize("is_new", [False, True], ids=["survivor", "new rank"])
def test_function_that_builds_otherwise_in_the_next_world_is_refused(is_new: bool) -> None:
    widths = iter((3, 5))
    state = built(lambda _: torch.nn.Linear(4, next(widths)))
    with entered(state):
        state.commit()
    if is_new:
        source, state = state, built(lambda _: torch.nn.Linear(4, 5))
        core_of(state).load(core_of(source).tree(), core_of(source).position)
    said = r"this one has `model\.weight float32 \[5, 4\]` where the one before has .*\[3, 4\]"
    with pytest.raises(StructureChanged, match=said), entered(state):
        pass


def test_other_error_of_a_load_into_what_was_built_is_passed_on() -> None:
    class Full(torch.nn.Linear):
        def load_state_dict(self, *_: object, **__: object) -> Never:
            raise RuntimeError("out of memory")

    state = built(lambda _: Full(4, 1))
    with entered(state):
        state.commit()
    with pytest.raises(RuntimeError, match="out of memory"), entered(state):
        pass

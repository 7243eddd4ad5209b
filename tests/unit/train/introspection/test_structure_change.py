"""A change of a model's structure in training is found within a second, at whatever commit."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.nn.utils import prune

from elasticd.errors import CallError
from elasticd.train.introspection.structure_change import (
    COMMITS_APART,
    PERIOD_S,
    SHARE,
    StructureChanged,
    StructureCheck,
)


class Clock:
    """A clock that stands still until it is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Compared:
    """The comparison of the whole structure; counts its calls."""

    def __init__(self, why: str = "") -> None:
        self.why, self.calls = why, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.why:
            raise CallError(self.why)


def net() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


def checked(model: torch.nn.Module, compared: Compared) -> tuple[StructureCheck, Clock]:
    clock = Clock()
    return StructureCheck([model], compared, clock=clock), clock


CHANGES: dict[str, Callable[[torch.nn.Sequential], object]] = {
    "pruned": lambda model: prune.l1_unstructured(model[0], "weight", amount=2),  # type: ignore[no-untyped-call]
    "module added": lambda model: model.append(torch.nn.Linear(3, 1)),
    "module replaced": lambda model: model.__setitem__(0, torch.nn.Linear(4, 3)),
    "parameter replaced": lambda model: setattr(
        model[0], "bias", torch.nn.Parameter(torch.zeros(3))
    ),
    "half": lambda model: model.half(),
    "buffer of another shape": lambda model: setattr(model[1], "running_mean", torch.zeros(5)),
    "no buffer any more": lambda model: setattr(model[1], "running_mean", None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_is_told_a_second_after_it_was_made(
    change: Callable[[torch.nn.Sequential], object],
) -> None:
    model, compared = net(), Compared("It has changed.")
    check, clock = checked(model, compared)
    clock.now_s = PERIOD_S
    check.look(1)
    change(model)
    check.look(2)
    assert not compared.calls
    clock.now_s = 2 * PERIOD_S
    with pytest.raises(StructureChanged, match=r"It has changed\."):
        check.look(3)


def test_job_ends_with_it_since_other_ranks_may_not_have_looked() -> None:
    assert StructureChanged.ends_job


def test_training_is_no_change() -> None:
    model, compared = net(), Compared("It has changed.")
    check, clock = checked(model, compared)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    model[1].running_mean = torch.ones(3)
    clock.now_s = PERIOD_S
    check.look(1)
    assert not compared.calls


def test_change_that_no_state_has_is_compared_once() -> None:
    model, compared = net(), Compared()
    check, clock = checked(model, compared)
    model.register_buffer("cache", torch.zeros(2), persistent=False)
    for second in (1, 2, 3):
        clock.now_s = second * PERIOD_S
        check.look(second)
    assert compared.calls == 1


def test_script_that_changes_something_at_each_look_is_looked_at_more_seldom() -> None:
    model, clock = net(), Clock()
    calls = []

    def compared() -> None:
        calls.append(clock.now_s)
        clock.now_s += 0.1

    check = StructureCheck([model], compared, clock=clock)
    for at_s in range(1, 101):
        clock.now_s = max(clock.now_s, float(at_s))
        model.register_buffer("cache", torch.zeros(at_s), persistent=False)
        check.look(at_s)
    assert calls == [1.0, 52.0]
    assert 0.1 / SHARE == 50.0


def test_all_ranks_look_at_a_sharded_model_at_the_same_commit() -> None:
    """To be asked for its state takes apart what a rank had gathered, and the others not."""
    model, compared = net(), Compared("It has changed.")
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        model[0].weight = torch.nn.Parameter(distribute_tensor(torch.zeros(3, 4), mesh))
        check, clock = checked(model, compared)
    finally:
        dist.destroy_process_group()
    model.append(torch.nn.Linear(3, 1))
    clock.now_s = 100 * PERIOD_S
    for step in range(1, COMMITS_APART):
        check.look(step)
    assert not compared.calls
    with pytest.raises(StructureChanged):
        check.look(COMMITS_APART)

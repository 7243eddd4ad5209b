"""Attributes that no state_dict holds, and that a step seems to make of the step before."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.train.introspection.unsaved_attributes import GIVEN_UP, LOOKS, UnsavedAttributes

STEPS = 2 * LOOKS


class Net(torch.nn.Module):
    """A module with one of each attribute, of which a test changes some."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(1))
        self.calls, self.flag, self.name = 0, False, "net"
        self.temperature = 1.0
        self.loss = torch.zeros(1)
        self.average = torch.zeros(2)
        self.kept = [torch.zeros(2)]
        self.same_as_seen = self.seen


def told(change: Callable[[Any, int], object], *, steps: int = STEPS, entry: Any = None) -> str:
    """Return what is said while `change(entry, step)` runs before each commit."""
    entry = entry if entry is not None else Net()
    said: list[str] = []
    check = UnsavedAttributes(said.append)
    check.begin({"model": entry})
    for step in range(1, steps + 1):
        change(entry, step)
        check.check(step)
    assert len(said) < 2
    return "".join(said)


def count(net: Any, step: int) -> None:
    net.calls += 1


def cool(net: Any, step: int) -> None:
    net.temperature *= 0.9


def warm(net: Any, step: int) -> None:
    net.temperature += 0.1


def average(net: Any, step: int) -> None:
    net.average.mul_(0.9).add_(step)


def keep(net: Any, step: int) -> None:
    net.kept[0] += step


def count_below(net: Any, step: int) -> None:
    net.layer.calls = 3 * step


STATE = {
    "model.calls": count,
    "model.temperature": cool,
    "model.average": average,
    "model.kept[0]": keep,
    "model.layer.calls": count_below,
}


@pytest.mark.parametrize("path", STATE)
def test_what_each_step_makes_of_the_one_before_is_named(path: str) -> None:
    assert f"each step changes {path}, which no state_dict holds" in told(STATE[path])


def test_float_that_grows_by_the_same_is_named() -> None:
    assert "model.temperature" in told(warm)


def replace_loss(net: Any, step: int) -> None:
    net.loss = torch.rand(1)


def measure(net: Any, step: int) -> None:
    net.temperature = 1.0 / (step * step + 0.3)


def take_turns(net: Any, step: int) -> None:
    net.calls = step % 3
    net.flag = not net.flag
    net.name += "+"


def train(net: Any, step: int) -> None:
    """What a state_dict holds may change in place, under a second name too."""
    with torch.no_grad():
        net.layer.weight.add_(1.0)
        net.seen.add_(1.0)


def infer(net: Any, step: int) -> None:
    """A tensor made in inference mode has no counter of its changes, and torch refuses to tell."""
    with torch.inference_mode():
        net.average = torch.ones(2) * step


@pytest.mark.parametrize("change", [replace_loss, measure, take_turns, train, infer])
def test_what_a_step_only_writes_is_not_named(change: Callable[[Any, int], object]) -> None:
    assert told(change) == ""


def test_class_that_saves_by_itself_is_left_alone() -> None:
    class Saves(Net):
        def get_extra_state(self) -> object:
            return self.calls

    class Other(Net):
        def state_dict(self, *args: Any, **options: Any) -> Any:
            return {**super().state_dict(*args, **options), "calls": self.calls}

    assert told(count, entry=Saves()) == told(count, entry=Other()) == ""


class Aside(torch.optim.SGD):
    """Has its momentum in an attribute."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.moments = {0: torch.zeros(2), 1: torch.zeros(2)}
        self.steps = 0


def step_aside(optimizer: Any, step: int) -> None:
    optimizer.moments[0].add_(1.0)
    optimizer.steps += 1


def test_moments_of_an_optimizer_are_named() -> None:
    said = told(step_aside, entry=Aside([torch.nn.Parameter(torch.zeros(2))]))
    assert "each step changes model.moments[0], model.steps, which" in said


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_optimizer_of_torch_with_a_scheduler_has_nothing_unsaved() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def step(_: Any, __: int) -> None:
        parameter.grad = torch.ones(2)
        optimizer.step()
        scheduler.step()

    assert told(step, entry=optimizer) == ""


def test_many_are_counted() -> None:
    net = torch.nn.Module()

    def step(_: Any, step: int) -> None:
        for index in range(5):
            setattr(net, f"count_{index}", step)

    assert "model.count_0, model.count_1, model.count_2 and 2 more, which" in told(step, entry=net)


def test_steps_that_do_not_follow_each_other_prove_nothing() -> None:
    said: list[str] = []
    net, check = Net(), UnsavedAttributes(said.append)
    check.begin({"model": net})
    for step in range(2, 4 * GIVEN_UP, 2):
        count(net, step)
        check.check(step)
    assert check.is_done
    assert not said


def test_end_of_an_epoch_is_no_step() -> None:
    said: list[str] = []
    net, check = Net(), UnsavedAttributes(said.append)
    check.begin({"model": net})
    for step in range(1, STEPS):
        count(net, step)
        check.check(step)
        check.check(step)
    assert len(said) == 1


def test_next_generation_begins_anew_and_says_nothing_twice() -> None:
    said: list[str] = []
    net, check = Net(), UnsavedAttributes(said.append)
    for first in (1, LOOKS - 1, 3 * LOOKS):
        check.begin({"model": net})
        for step in range(first, first + LOOKS - (first == 1)):
            count(net, step)
            check.check(step)
    assert len(said) == 1


def test_who_changes_nothing_is_looked_at_twice() -> None:
    check = UnsavedAttributes()
    check.begin({"model": Net()})
    check.check(1)
    assert not check.is_done
    check.check(2)
    assert check.is_done

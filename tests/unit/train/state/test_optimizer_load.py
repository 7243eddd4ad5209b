"""An optimizer's state keeps its types, whatever the parameters are, on whoever loads it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.state.optimizer_load import load_optimizer
from elasticd.train.state.state import State, core_of
from elasticd.train.state.state_dict import load
from tests.unit.train.state.state_case import entered


class Mixed(torch.optim.Optimizer):
    """Moments in float32, a history in 8 bits and a list, of parameters in any type."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                entry = self.state[parameter]
                if not entry:
                    entry["average"] = torch.zeros_like(parameter, dtype=torch.float32)
                    entry["history"] = torch.zeros(parameter.shape, dtype=torch.uint8)
                    entry["rest"] = [torch.zeros(1, dtype=torch.float64)]
                entry["average"].mul_(0.9).add_(parameter.grad.float())
                entry["history"].add_(1)
                entry["rest"][0].add_(1e-9)
                parameter.add_(entry["average"].to(parameter.dtype), alpha=-group["lr"])


class Scaled:
    """Wraps an optimizer and saves it, as libraries for mixed precision do."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "scale": 2.0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


Make = Callable[[Any], Any]
MAKERS: dict[str, Make] = {
    "mixed": Mixed,
    "wrapped": lambda parameters: Scaled(Mixed(parameters)),
    "NAdam": torch.optim.NAdam,
    "ASGD": torch.optim.ASGD,
    "fused AdamW": lambda parameters: torch.optim.AdamW(parameters, fused=True),
}


def ready(make: Make, dtype: torch.dtype) -> tuple[State, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(5)
    model = torch.nn.Linear(8, 8, bias=False, dtype=dtype)
    made = make(model.parameters())
    inner = made.optimizer if isinstance(made, Scaled) else made
    return State(model=model, optimizer=made), inner, model.weight


def train(
    state: State, optimizer: torch.optim.Optimizer, weight: torch.Tensor, seed: int, steps: int
) -> None:
    torch.manual_seed(seed)
    gradients = [torch.randn(weight.shape).to(weight.dtype) for _ in range(steps)]
    with entered(state):
        for gradient in gradients:
            weight.grad = gradient
            optimizer.step()
            state.commit()


def types(optimizer: torch.optim.Optimizer) -> list[torch.dtype]:
    found = []
    for entry in optimizer.state.values():
        for value in entry.values():
            for each in value if isinstance(value, list) else [value]:
                found += [each.dtype] if isinstance(each, torch.Tensor) else []
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("had_steps", [0, 3], ids=["new", "old"])
def test_rank_that_was_given_a_state_trains_on_as_its_source(
    make: Make, dtype: torch.dtype, had_steps: int
) -> None:
    """Cast to the type of their parameters, moments would make other steps of equal gradients."""
    source, target = ready(make, dtype), ready(make, dtype)
    train(*source, seed=1, steps=2)
    train(*target, seed=2, steps=had_steps)
    core_of(source[0]).settle_back()
    core_of(target[0]).settle_back()
    assert core_of(target[0]).is_clean
    core_of(target[0]).load(copy.deepcopy(core_of(source[0]).tree()), core_of(source[0]).position)
    assert types(target[1]) == types(source[1])
    for state, optimizer, weight in (source, target):
        train(state, optimizer, weight, seed=3, steps=50)
    assert torch.equal(source[2], target[2])


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_survivor_that_goes_back_keeps_its_types_and_counts_as_clean(make: Make) -> None:
    """A wrapper is brought back by its own load_state_dict, at each change of world."""
    state, optimizer, weight = ready(make, torch.bfloat16)
    train(state, optimizer, weight, seed=1, steps=2)
    before, tensors = types(optimizer), [each.clone() for each in core_of(state).tree().tensors]
    for _ in range(2):
        core_of(state).settle_back()
        assert core_of(state).is_clean
        assert types(optimizer) == before
        for one, other in zip(core_of(state).tree().tensors, tensors, strict=True):
            assert torch.equal(one, other)


def hosted() -> tuple[torch.optim.Optimizer, dict[str, Any]]:
    """An optimizer without state, of a parameter on another device; and a state on the host."""
    parameter = torch.nn.Parameter(torch.zeros(3, device="meta"))
    saver = torch.optim.Adam([torch.nn.Parameter(torch.zeros(3))])
    saver.param_groups[0]["params"][0].grad = torch.ones(3)
    saver.step()
    return torch.optim.Adam([parameter]), saver.state_dict()


def devices(optimizer: torch.optim.Optimizer) -> set[str]:
    (entry,) = optimizer.state.values()
    return {entry[name].device.type for name in ("exp_avg", "exp_avg_sq")}


def test_state_that_a_script_keeps_on_the_host_stays_there_on_a_new_rank() -> None:
    """torch moves it to the device of its parameter, where the script has no room for it."""
    optimizer, state = hosted()
    load(optimizer, state)
    assert devices(optimizer) == {"cpu"}
    (entry,) = optimizer.state.values()
    assert torch.equal(entry["exp_avg"], state["state"][0]["exp_avg"])


def test_state_whose_devices_nobody_knows_goes_where_torch_puts_it() -> None:
    """A checkpoint knows none; only what is there already stays where it is."""
    optimizer, state = hosted()
    load(optimizer, state, is_placed=False)
    assert devices(optimizer) == {"meta"}
    optimizer, state = hosted()
    (parameter,) = optimizer.param_groups[0]["params"]
    optimizer.state[parameter] = own = dict(state["state"][0])
    load(optimizer, state, is_placed=False)
    assert devices(optimizer) == {"cpu"}
    assert optimizer.state[parameter]["exp_avg"] is own["exp_avg"]


def test_state_that_a_wrapper_keeps_on_the_host_stays_there_on_a_survivor() -> None:
    """It is put back by the wrapper's own load, at each change of world."""
    optimizer, state = hosted()
    optimizer.state[optimizer.param_groups[0]["params"][0]] = dict(state["state"][0])
    load(Scaled(optimizer), {"optimizer": state, "scale": 1.0})
    assert devices(optimizer) == {"cpu"}


def test_state_that_a_class_copies_to_the_host_to_save_it_goes_where_torch_puts_it() -> None:
    """It is not told by what is saved where the script has it."""

    class Saved(torch.optim.Adam):
        def state_dict(self) -> dict[str, Any]:
            return super().state_dict()

    optimizer, state = hosted()
    optimizer = Saved(optimizer.param_groups[0]["params"])
    load(optimizer, state)
    assert devices(optimizer) == {"meta"}


def test_other_groups_are_refused_with_what_to_do() -> None:
    """torch's ValueError names neither the optimizer nor the cure."""
    one, two = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([one], lr=0.1)
    saved = torch.optim.SGD([{"params": [one]}, {"params": [two]}], lr=0.1).state_dict()
    with pytest.raises(CallError, match="SGD has other parameter groups"):
        load_optimizer(optimizer, saved)

"""An optimizer's state keeps its types, whatever the parameters are, on whoever loads it."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.tensors.tree import unflatten
from elasticd.train.state import state_core
from elasticd.train.state.optimizer_load import kept_on_host, load_optimizer
from elasticd.train.state.state import State, core_of
from elasticd.train.state.state_core import HOSTED
from elasticd.train.state.state_dict import load
from tests.unit.train.state.state_case import entered, facts, plain, plain_step, same
from tests.unit.train.state.state_case import train as train_to


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
    core_of(source[0]).rollback()
    core_of(target[0]).rollback()
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
        core_of(state).rollback()
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


class Copying(torch.optim.Adam):
    """Saves copies on the host, wherever its state is."""

    def state_dict(self) -> dict[str, Any]:
        saved = super().state_dict()
        for number, entry in saved["state"].items():
            saved["state"][number] = dict.fromkeys(entry, torch.zeros(3))
        return saved


def off_host(kind: type[torch.optim.Adam], where: dict[str, str]) -> torch.optim.Optimizer:
    """An optimizer of a parameter on another device, with its state where it is told."""
    parameter = torch.nn.Parameter(torch.zeros(3, device="meta"))
    optimizer = kind([parameter])
    for name, device in where.items():
        optimizer.state[parameter][name] = torch.zeros(3, device=device)
    return optimizer


@pytest.mark.parametrize("kind", [torch.optim.Adam, Copying])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_restored_state_is_on_the_host_where_it_was_there(
    kind: type[torch.optim.Adam], is_wrapped: bool
) -> None:
    """All tensors of a checkpoint are on the host: the state itself says where they were."""
    where = {"exp_avg": "cpu", "exp_avg_sq": "meta", "step": "cpu"}
    source, target = off_host(kind, where), off_host(kind, {})
    told = json.loads(json.dumps(kept_on_host([source])))
    assert told == [{"parameters": 1, "names": {"exp_avg": True}}]
    state = off_host(Copying, where).state_dict()
    if is_wrapped:
        load(Scaled(target), {"optimizer": state, "scale": 1.0}, False, told)
    else:
        load(target, state, False, told)
    (entry,) = target.state.values()
    assert {name: entry[name].device.type for name in where} == where


def test_what_was_told_of_other_optimizers_is_not_paired_by_their_order() -> None:
    """Another number of optimizers, or of an optimizer's parameters, may mean another order."""
    where = {"exp_avg": "cpu", "step": "cpu"}
    source = off_host(torch.optim.Adam, where)
    one, two = kept_on_host([source]), kept_on_host([source, source])
    more = [{**one[0], "parameters": 2}]
    for told, device in ((one, "cpu"), (two, "meta"), (more, "meta")):
        target = off_host(torch.optim.Adam, {})
        load(target, off_host(Copying, where).state_dict(), False, told)
        (entry,) = target.state.values()
        assert entry["exp_avg"].device.type == device


def test_state_of_some_parameters_on_the_host_is_told_by_their_numbers() -> None:
    """And nothing is told where all is with its parameter, or torch decides."""
    source = off_host(torch.optim.Adam, {"exp_avg": "cpu", "step": "cpu"})
    other = torch.nn.Parameter(torch.zeros(3, device="meta"))
    source.add_param_group({"params": [other]})
    source.state[other]["exp_avg"] = torch.zeros(3, device="meta")
    assert kept_on_host([source]) == [{"parameters": 2, "names": {"exp_avg": [0]}}]
    assert kept_on_host([off_host(torch.optim.Adam, {"exp_avg": "meta", "step": "cpu"})]) == []


def test_state_says_what_its_optimizers_keep_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is something to say; a state that says nothing of it, an older one, loads too."""
    one, other, old = (plain(torch.optim.Adam)[0] for _ in range(3))
    train_to((one, plain_step), steps=2)
    usual = core_of(one).tree()
    assert HOSTED not in unflatten(usual)
    monkeypatch.setattr(state_core, "kept_on_host", lambda _: [{"exp_avg": True}])
    monkeypatch.setattr(core_of(one), "_off_host", {"optimizer": (one.optimizer,)})
    tree = core_of(one).tree()
    assert unflatten(tree)[HOSTED] == {"optimizer": [{"exp_avg": True}]}
    given: list[Any] = []

    def noted(value: Any, state: Any, is_placed: bool = True, on_host: Any = ()) -> Any:
        if value is other.optimizer:
            given.append(on_host)
        return load(value, state, is_placed, on_host)

    monkeypatch.setattr("elasticd.train.state.state_dict.load", noted)
    core_of(other).load(copy.deepcopy(tree), core_of(one).position)
    assert given == [[{"exp_avg": True}]]
    monkeypatch.undo()
    core_of(old).load(copy.deepcopy(usual), core_of(one).position)
    assert same(facts(old), facts(other))
    assert same(facts(old), facts(one))

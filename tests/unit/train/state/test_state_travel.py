"""A state goes from one rank to another, and from one generation to the next."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.eval_frame import OptimizedModule

from elasticd.errors import CallError
from elasticd.tensors.tree import flatten, unflatten
from elasticd.train.data.loader import Loader
from elasticd.train.interrupt import Interrupted
from elasticd.train.state import state_dict as transfer
from elasticd.train.state.state import State, core_of
from elasticd.train.world import World
from tests.unit.train.state.state_case import (
    CASES,
    Killer,
    entered,
    facts,
    model,
    plain,
    plain_step,
    same,
    train,
)

_LR = torch.optim.lr_scheduler


class SWALROf29(torch.optim.swa_utils.SWALR):
    """As torch 2.9 has it: its state has the function of its curve."""

    state_dict = _LR.LRScheduler.state_dict
    load_state_dict = _LR.LRScheduler.load_state_dict


@pytest.mark.parametrize("case", ["SGD", "Adam", "scaler", "two optimizers", "average", "closure"])
def test_new_rank_that_loads_a_state_goes_on_like_its_source(case: str) -> None:
    """Into a fresh process: optimizers without state, a scaler without a scale."""
    make = CASES[case][0]
    source, target = make(), make()
    train(source, steps=3)
    assert core_of(target[0]).is_new
    assert core_of(target[0]).structure() == core_of(source[0]).structure()
    core_of(target[0]).load(copy.deepcopy(core_of(source[0]).tree()), core_of(source[0]).position)
    assert core_of(target[0]).is_clean
    assert not core_of(target[0]).is_new
    assert same(facts(target[0]), facts(source[0]))
    train(source)
    train(target)
    assert same(facts(target[0]), facts(source[0]))


def test_parameter_among_the_values_stays_the_one_that_its_optimizer_trains() -> None:
    """However deep it stands in them."""

    def made() -> State:
        learned = [{"scale": torch.nn.Parameter(torch.ones(2))}, (torch.zeros(1), "text")]
        optimizer = torch.optim.SGD([learned[0]["scale"]], lr=0.1)  # type: ignore[index]
        return State(learned=learned, optimizer=optimizer)

    def step(state: State) -> None:
        state.optimizer.zero_grad()
        state.learned[0]["scale"].square().sum().backward()
        state.optimizer.step()
        state.learned[1][0].add_(1)
        state.commit()

    source, target = made(), made()
    for state, steps in ((source, 2), (target, 1)):
        with entered(state):
            for _ in range(steps):
                step(state)
    core_of(target).load(copy.deepcopy(core_of(source).tree()), core_of(source).position)
    assert target.learned[0]["scale"] is target.optimizer.param_groups[0]["params"][0]
    for state in (source, target):
        with entered(state):
            step(state)
    assert same(facts(target), facts(source))


def test_rank_that_is_ahead_or_dirty_takes_over_an_older_state() -> None:
    """Whatever its own copies said before."""
    make = CASES["Adam"][0]
    source, target = make(), make()
    train(source, steps=2)
    train(target, steps=4)
    with pytest.raises(Interrupted), entered(target[0]):
        plain_step(target[0], Killer(target[0], "step", 4))
    core_of(target[0]).rollback()
    core_of(target[0]).load(copy.deepcopy(core_of(source[0]).tree()), core_of(source[0]).position)
    core_of(target[0]).rollback()
    assert core_of(target[0]).is_clean
    train(source)
    train(target)
    assert same(facts(target[0]), facts(source[0]))


def test_what_was_received_for_an_optimizer_becomes_its_state_without_a_copy() -> None:
    """Moments are twice the size of a model, and a new rank would hold them twice."""
    source, target = CASES["Adam"][0](), CASES["Adam"][0]()
    train(source, steps=2)
    received = copy.deepcopy(core_of(source[0]).tree())
    core_of(target[0]).load(received, core_of(source[0]).position)
    addresses = {tensor.data_ptr() for tensor in received.tensors}
    for entry in target[0].optimizer.state.values():
        assert entry["exp_avg"].data_ptr() in addresses
    for parameter in target[0].model.parameters():
        assert parameter.data_ptr() not in addresses, "it has had its place before"


def test_what_a_newer_version_says_beside_the_entries_is_left_out() -> None:
    """It begins with an underscore, as what this version says itself."""
    one, other = plain(torch.optim.SGD)[0], plain(torch.optim.SGD)[0]
    train((one, plain_step), steps=2)
    entries = unflatten(copy.deepcopy(core_of(one).tree()))
    newer = flatten("state", {**entries, "_newer": {"optimizer": [1]}})
    core_of(other).load(newer, core_of(one).position)
    assert core_of(other).is_clean
    assert same(facts(other), facts(one))


def test_load_that_failed_in_the_middle_leaves_the_rank_dirty() -> None:
    """It is of two steps at once."""
    source, target = CASES["Adam"][0](), CASES["Adam"][0]()
    train(source, steps=2)
    target[0].optimizer.load_state_dict = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        core_of(target[0]).load(
            copy.deepcopy(core_of(source[0]).tree()), core_of(source[0]).position
        )
    core_of(target[0]).rollback()
    assert not core_of(target[0]).is_clean


def test_tree_shares_memory_with_the_model() -> None:
    """A source does not copy what it sends."""
    state, _ = plain(torch.optim.Adam)
    shared = {tensor.data_ptr() for tensor in core_of(state).tree().tensors}
    assert {tensor.data_ptr() for tensor in state.model.parameters()} <= shared


def test_compiled_module_has_the_names_of_the_one_inside() -> None:
    """So ranks that compile and ranks that do not can help each other."""
    net = model()
    compiled = OptimizedModule(net, lambda _: None)  # type: ignore[arg-type]
    assert compiled.state_dict().keys() != net.state_dict().keys()
    one, other = (core_of(State(model=each)) for each in (compiled, net))
    assert one.structure() == other.structure()


def test_tied_parameters_and_a_model_in_two_entries_work() -> None:
    """They are one thing with two names."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    net[1].weight = net[0].weight
    optimizer = torch.optim.Adam(net.parameters())
    state = State(model=net, again=net[0], optimizer=optimizer, same=optimizer)

    def step(state: State, at: Callable[[str], None]) -> None:
        state.optimizer.zero_grad()
        state.model(torch.randn(2, 3)).square().mean().backward()
        state.optimizer.step()
        at("step")
        state.commit()

    assert train((state, step), at=Killer(state, "step", 1)) == 1
    assert net[0].weight is net[1].weight


def test_builder_is_called_for_each_generation_and_gets_the_state_of_the_one_before() -> None:
    """FSDP is built for one process group."""
    seen: list[int] = []

    def build(world: World) -> torch.nn.Module:
        seen.append(world.generation)
        return torch.nn.Linear(4, 1)

    def with_adam() -> State:
        def build_optimizer(_: World) -> torch.optim.Optimizer:
            return torch.optim.Adam(state.model.parameters(), lr=0.1)

        state = State(model=build, optimizer=build_optimizer)
        return state

    state = with_adam()
    with pytest.raises(AttributeError, match="built when train is called"):
        _ = state.model

    def step(state: State, at: Callable[[str], None]) -> None:
        state.optimizer.zero_grad()
        state.model(torch.ones(2, 4)).square().mean().backward()
        state.optimizer.step()
        at("step")
        state.commit()

    with entered(state):
        first = state.model
        for _ in range(2):
            step(state, lambda _: None)
        before = facts(state)
    with entered(state):
        assert state.model is not first
        assert same(facts(state), before)
        step(state, lambda _: None)
    assert len(seen) == 2

    other = with_adam()
    assert core_of(other).structure() == core_of(state).structure()
    core_of(other).load(copy.deepcopy(core_of(state).tree()), core_of(state).position)
    assert same(facts(other), facts(state))
    with entered(other):
        assert same(facts(other), facts(state))


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], _LR.LRScheduler]] = {
    "LambdaLR": lambda optimizer: _LR.LambdaLR(optimizer, lambda step: (step + 1) / 10),
    "LinearLR": lambda optimizer: _LR.LinearLR(optimizer, 0.1, total_iters=3),
    "OneCycleLR": lambda optimizer: _LR.OneCycleLR(optimizer, max_lr=1.0, total_steps=50),
    "SequentialLR": lambda optimizer: _LR.SequentialLR(
        optimizer,
        [_LR.LinearLR(optimizer, 0.1, total_iters=3), _LR.CosineAnnealingLR(optimizer, 50)],
        [3],
    ),
}


@pytest.mark.parametrize("is_all_built", [False, True])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_scheduler_that_is_built_anew_leaves_the_rate_as_it_is(
    kind: str, is_all_built: bool
) -> None:
    """When it is made it writes its first rate, on survivors as on a new rank."""

    def made() -> State:
        net = model()
        kept = torch.optim.SGD(net.parameters(), lr=0.1)
        state: State = State(
            model=net,
            optimizer=(lambda _: torch.optim.SGD(net.parameters(), lr=0.1))
            if is_all_built
            else kept,
            scheduler=lambda _: SCHEDULES[kind](state.optimizer),
            seen=0,
            history=[],
        )
        return state

    def rate(state: State) -> Any:
        return state.optimizer.param_groups[0]["lr"]

    state, other = made(), made()
    with entered(state):
        for _ in range(5):
            plain_step(state, lambda _: None)
        before, whole = rate(state), copy.deepcopy(core_of(state).tree())
    with entered(state):
        assert rate(state) == before
    core_of(other).load(whole, core_of(state).position)
    with entered(other):
        assert rate(other) == before


def test_new_rank_takes_over_a_loader_that_it_has_not_built_yet() -> None:
    """With what it has counted."""

    def made() -> State:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        return State(model=net, optimizer=optimizer, data=lambda _: Loader(torch.arange(100.0), 10))

    state, other = made(), made()
    with entered(state):
        for _ in zip(range(3), state.data, strict=False):
            state.optimizer.step()
            state.commit()
    core_of(other).load(copy.deepcopy(core_of(state).tree()), core_of(state).position)
    for each in (state, other):
        with entered(each):
            assert (each.data.epoch, each.data.consumed) == (0, 30)
            for _ in each.data:
                each.optimizer.step()
                each.commit()
        assert core_of(each).data_totals == (100, 0, 0)


def test_what_is_in_place_already_is_not_copied_to_itself() -> None:
    """A state that was received into the model's own memory; what is elsewhere is copied."""
    layer, norm = torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)
    model = torch.nn.Sequential(layer, norm)
    state: Any = model.state_dict()
    elsewhere = state["0.bias"] = torch.full((2,), 7.0)
    loaded = transfer._with_own(model, state)
    assert loaded["0.weight"] is layer.weight, "torch sees that this is itself"
    assert loaded["1.running_var"] is norm.running_var
    assert loaded["0.bias"] is elsewhere
    assert loaded._metadata[""]["version"] == 1, "what loading looks at is still there"
    transfer.load(model, state)
    assert layer.bias.tolist() == [7.0, 7.0]


def test_module_with_a_state_dict_of_its_own_is_loaded_by_its_own_rules() -> None:
    """It knows nothing of torch's arguments, nor need its state be a dict of tensors."""

    class Own(torch.nn.Linear):
        def state_dict(self) -> Any:  # type: ignore[override]
            return [self.weight.detach()]

        def load_state_dict(self, state: Any) -> None:  # type: ignore[override]
            with torch.no_grad():
                self.weight.copy_(state[0])

    module = Own(2, 1)
    transfer.load(module, [torch.full((1, 2), 3.0)])
    assert module.weight.tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda each: each,
        lambda each: _LR.SequentialLR(each.optimizer, [_LR.ConstantLR(each.optimizer), each], [2]),
    ],
    ids=["alone", "within another"],
)
def test_scheduler_whose_state_has_a_function_keeps_its_own(
    wrapped: Callable[[SWALROf29], Any],
) -> None:
    def made(strategy: Any) -> tuple[State, SWALROf29]:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = SWALROf29(optimizer, 0.5, anneal_strategy=strategy)
        state = State(
            model=net, optimizer=optimizer, scheduler=wrapped(scheduler), seen=0, history=[]
        )
        return state, scheduler

    (source, _), (disturbed, _), (target, scheduler) = made("linear"), made("linear"), made("cos")
    train((source, plain_step))
    train((disturbed, plain_step), at=Killer(disturbed, "schedule", 2))
    assert same(facts(disturbed), facts(source))
    core_of(target).load(copy.deepcopy(core_of(source).tree()), core_of(source).position)
    assert same(facts(target), facts(source))
    assert scheduler.anneal_func is SWALROf29._cosine_anneal


def test_function_of_the_script_in_the_state_of_a_scheduler_is_refused() -> None:
    """Whether another rank has the same one, nobody knows."""
    optimizer = torch.optim.SGD(model().parameters(), lr=0.1)
    scheduler = SWALROf29(optimizer, 0.5)
    scheduler.anneal_func = lambda part: part
    with pytest.raises(CallError, match="anneal_func is a builtins"):
        core_of(State(optimizer=optimizer, scheduler=scheduler)).tree()

"""`train` is called anew after each change of world: what it did to what outlives it is undone."""

import copy
import dataclasses
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

import elasticd
from elasticd.channel.worker import Enter
from elasticd.errors import CallError
from elasticd.records.ids import Generation
from elasticd.train import run as run_module
from elasticd.train.interrupt import Interrupted
from elasticd.train.session.single_process import SingleProcess
from elasticd.train.state.module_mode import adopt_modes, modes_of
from elasticd.train.state.state import State, core_of
from elasticd.train.world import World
from tests.unit.train.state.state_case import entered, model, plain, plain_step, world


def made() -> State:
    net = model()
    return State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))


HOOKS: dict[str, Callable[[State, Callable[..., None]], object]] = {
    "forward": lambda state, count: state.model[0].register_forward_hook(count),
    "forward pre": lambda state, count: state.model.register_forward_pre_hook(count),
    "backward": lambda state, count: state.model[3].register_full_backward_hook(count),
    "gradient": lambda state, count: state.model[0].weight.register_hook(count),
    "gradient that is there": lambda state, count: state.model[
        3
    ].bias.register_post_accumulate_grad_hook(count),
    "step": lambda state, count: state.optimizer.register_step_post_hook(count),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hook_that_train_registers_is_called_once_in_each_generation(kind: str) -> None:
    """On the ranks that were there before as on a new one."""
    state, calls, kept = made(), [0], [0]

    def count(*_: object) -> None:
        calls[0] += 1

    def count_all(*_: object) -> None:
        kept[0] += 1

    HOOKS[kind](state, count_all)
    for _ in range(3):
        with entered(state):
            HOOKS[kind](state, count)
            plain_step(state, lambda _: None)
    assert calls == kept == [3]


@pytest.mark.parametrize("is_prebuilt", [False, True])
def test_hook_that_a_function_of_world_registers_is_called_once_in_each_generation(
    is_prebuilt: bool,
) -> None:
    """It is called again for each, before or after this rank knows that it has to be restored."""
    calls = [0]

    def build(_: World) -> torch.nn.Module:
        def count(*_: object) -> None:
            calls[0] += 1

        net.register_forward_hook(count)
        return torch.nn.Linear(1, 1)

    net = model()
    state = State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), probe=build)
    for generation in range(3):
        if is_prebuilt and generation:
            tree = copy.deepcopy(core_of(state).tree())
            core_of(state).prebuild(world())
            core_of(state).load(tree, core_of(state).position)
        with entered(state):
            plain_step(state, lambda _: None)
    assert calls == [3]


@pytest.mark.parametrize("is_evaluating", [False, True])
def test_rank_that_is_interrupted_in_an_evaluation_trains_on_as_it_did(is_evaluating: bool) -> None:
    """With dropout, and the statistics of BatchNorm; what stood still before still does."""
    state = made()
    with suppress(Interrupted), entered(state):
        state.model[1].train(not is_evaluating)
        plain_step(state, lambda _: None)
        state.model.eval()
        raise Interrupted
    with entered(state):
        assert state.model.training and state.model[2].training
        assert state.model[1].training is not is_evaluating


def test_parameters_that_a_part_of_a_step_freezes_are_trained_again() -> None:
    """A GAN freezes its discriminator for the generator's pass, which is where others are waited
    for; what was frozen at the commit still is.
    """
    state = made()
    with suppress(Interrupted), entered(state):
        state.model[0].requires_grad_(False)
        plain_step(state, lambda _: None)
        state.model.requires_grad_(False)
        state.model[0].requires_grad_(True)
        raise Interrupted
    with entered(state):
        assert all(each.requires_grad for each in state.model[3].parameters())
        assert not any(each.requires_grad for each in state.model[0].parameters())


class Twice(SingleProcess):
    """Its first world is over as soon as `train` was left."""

    def next_world(self) -> Enter | None:
        if self.generation > 1:
            return None
        self.generation += 1
        enter = SingleProcess().next_world()
        assert enter is not None
        return dataclasses.replace(enter, generation=Generation(self.generation))


def test_gradients_are_on_again_where_train_was_left_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By `torch.set_grad_enabled(False)`, which no `with` ends."""
    monkeypatch.setattr(run_module, "SingleProcess", Twice)
    seen: list[bool] = []

    def train(state: State, world: World) -> None:
        seen.append(torch.is_grad_enabled())
        if world.generation == 1:
            torch.set_grad_enabled(False)
            raise Interrupted

    try:
        elasticd.run(train, made())
    finally:
        torch.set_grad_enabled(True)
    assert seen == [True, True]


def test_new_rank_freezes_and_evaluates_what_the_others_do() -> None:
    """In training they may have frozen what its script does not; no state_dict says so."""
    one, other = model(), model()
    one[0].requires_grad_(False)  # type: ignore[index]
    one[1].eval()  # type: ignore[index]
    other[3].requires_grad_(False)  # type: ignore[index]
    said = json.loads(json.dumps(modes_of({"model": one})))
    adopt_modes({"model": other}, said)
    assert modes_of({"model": other}) == said
    assert other[3].weight.requires_grad and not other[0].weight.requires_grad  # type: ignore[index]
    assert other[2].training and not other[1].training  # type: ignore[index]


# --- what is refused, since no other process could do the same -----------------------------------


def test_parameters_that_are_added_in_training_are_refused_at_the_commit() -> None:
    """The process that replaces this one has no place for their state."""
    net: Any = model()
    state = State(model=net, optimizer=torch.optim.SGD(net[0].parameters(), lr=0.1, momentum=0.9))
    with entered(state):
        plain_step(state, lambda _: None)
        state.optimizer.add_param_group({"params": list(net[3].parameters())})
        with pytest.raises(CallError, match="given other parameters in train"):
            plain_step(state, lambda _: None)
        assert state.step == 1


def test_scheduler_that_is_made_in_train_is_refused_at_the_commit() -> None:
    """It would begin at its first step again after each change of world."""
    state = made()
    with entered(state):
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(state.optimizer, 10)
        with pytest.raises(CallError, match=r"scheduler was made in train for the SGD.*State\("):
            plain_step(state, lambda _: None)
        schedule.step()
    own, _ = plain(torch.optim.SGD, lr=0.1)
    with entered(own):
        plain_step(own, lambda _: None)
    built: State = State(
        model=model(),
        optimizer=lambda world: torch.optim.SGD(built.model.parameters(), lr=0.1),
        scheduler=lambda world: torch.optim.lr_scheduler.StepLR(built.optimizer, 1),
        seen=0,
        history=[],
    )
    for _ in range(2):
        with entered(built):
            plain_step(built, lambda _: None)


def test_scheduler_of_an_optimizer_that_lives_within_a_step_is_taken() -> None:
    """It is no part of the state, and nor is its optimizer."""
    state = made()
    with entered(state):
        delta = torch.zeros(1, requires_grad=True)
        attack = torch.optim.SGD([delta], lr=0.1)
        torch.optim.lr_scheduler.StepLR(attack, 1)
        plain_step(state, lambda _: None)
    assert state.step == 1

"""An optimizer whose parameters are not in the state is refused: nobody would bring them back."""

from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.call_check import check_call
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.state import State
from tests.unit.train.state.state_case import entered, model


def checked(state: State) -> None:
    check_call(lambda state, world: None, state, WorkerSettings.read({}))


def test_model_that_was_forgotten_is_missed_before_the_run_begins() -> None:
    """All would go well until the first failure."""
    net, head = model(), torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()])
    with pytest.raises(CallError, match=r"AdamW of the state trains 8 parameters that no entry"):
        checked(State(optimizer=optimizer))
    with pytest.raises(CallError, match=r"trains 2 parameters .*the shape \[1, 1\]"):
        checked(State(model=net, optimizer=optimizer))
    checked(State(model=net, head=head, optimizer=optimizer))


def test_what_is_built_for_a_world_is_looked_at_in_its_first_commit() -> None:
    """The functions were not called before."""
    net = model()
    state = State(optimizer=lambda world: torch.optim.SGD(net.parameters(), lr=0.1))
    checked(state)
    with entered(state):
        net(torch.randn(4, 4)).square().mean().backward()
        state.optimizer.step()
        with pytest.raises(CallError, match="that no entry of it holds"):
            state.commit()
        assert state.step == 0


class Latents:
    """An object of the script's own; it saves a copy, or the tensors that it has."""

    def __init__(self, *, is_copied: bool) -> None:
        self.codes = torch.nn.Parameter(torch.zeros(3, 2))
        self.is_copied = is_copied

    def state_dict(self) -> dict[str, torch.Tensor]:
        codes = self.codes.detach()
        return {"codes": codes.clone() if self.is_copied else codes}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.codes.data.copy_(state["codes"])


@pytest.mark.parametrize("is_copied", [False, True])
def test_parameters_may_stand_in_an_object_or_among_the_values(is_copied: bool) -> None:
    """Wherever they are, they are saved and brought to another rank."""
    latents = Latents(is_copied=is_copied)
    scale = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([latents.codes, scale], lr=0.1)
    checked(State(latents=latents, learned={"scale": scale}, optimizer=optimizer))
    with pytest.raises(CallError, match="trains 1 parameters"):
        checked(State(latents=latents, optimizer=optimizer))


def test_module_that_leaves_parameters_out_of_its_state_is_refused() -> None:
    """As one that saves its adapters only and trains more."""

    class Sparing(torch.nn.Linear):
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            return {"weight": super().state_dict(*args, **kwargs)["weight"]}

    net = Sparing(2, 2)
    with pytest.raises(CallError, match=r"trains 1 parameters .*the shape \[2\]"):
        checked(State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1)))
    net.bias.requires_grad_(False)
    checked(State(model=net, optimizer=torch.optim.SGD([net.weight], lr=0.1)))

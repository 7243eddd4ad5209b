"""A survivor begins `train` without the gradients of the step that was interrupted."""

import pytest
import torch

from elasticd.train.state.state import State
from tests.unit.train.state.state_case import At, Case, Killer, facts, same, train


class Wrapper:
    """An object of the script that holds an optimizer."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.inner = torch.optim.SGD([tensor], lr=0.1)

    def state_dict(self) -> dict[str, object]:
        return {"inner": self.inner.state_dict()}

    def load_state_dict(self, state: dict[str, dict[str, object]]) -> None:
        self.inner.load_state_dict(state["inner"])


def trained_by_hand(where: str) -> Case:
    """A tensor among the values; its gradient is cleared at the end of each step."""
    tensor = torch.ones(3, requires_grad=True)
    value: object = {"tensor": tensor, "list": [tensor], "dict": {"deep": (tensor,)}}[where]

    def step(state: State, at: At) -> None:
        (tensor - torch.randn(3)).square().sum().backward()  # type: ignore[no-untyped-call]
        at("backward")
        gradient = tensor.grad
        assert gradient is not None
        with torch.no_grad():
            tensor.sub_(gradient, alpha=0.1)
        gradient.zero_()
        state.commit()

    return State(value=value), step


def wrapped() -> Case:
    """An optimizer within an object, which trains a tensor that is no module's."""
    tensor = torch.ones(3, requires_grad=True)

    def step(state: State, at: At) -> None:
        (tensor - torch.randn(3)).square().sum().backward()  # type: ignore[no-untyped-call]
        at("backward")
        state.wrapper.inner.step()
        state.wrapper.inner.zero_grad()
        state.commit()

    return State(value=tensor, wrapper=Wrapper(tensor)), step


@pytest.mark.parametrize("where", ["tensor", "list", "dict"])
def test_gradient_of_a_value_is_not_added_to_that_of_the_repeated_step(where: str) -> None:
    """The script sums gradients over the ranks, so no comparison of replicas would find it."""
    undisturbed, disturbed = trained_by_hand(where), trained_by_hand(where)
    assert train(undisturbed) == 0
    assert train(disturbed, at=Killer(disturbed[0], "backward", 3)) == 1
    assert same(facts(disturbed[0]), facts(undisturbed[0]))


def test_gradient_that_a_wrapped_optimizer_uses_is_not_added_to_that_of_the_repeated_step() -> None:
    undisturbed, disturbed = wrapped(), wrapped()
    assert train(undisturbed) == 0
    assert train(disturbed, at=Killer(disturbed[0], "backward", 3)) == 1
    assert same(facts(disturbed[0]), facts(undisturbed[0]))

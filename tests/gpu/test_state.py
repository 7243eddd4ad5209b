"""A state on a GPU goes back to its last commit: what is kept, undone and scaled is put back."""

from collections.abc import Callable

import pytest
import torch

from elasticd.train.optimizer import optimizer_undo as undo_module
from elasticd.train.optimizer.optimizer_undo import OptimizerUndo
from tests.gpu.card import CARD
from tests.unit.train.state import state_case as cases
from tests.unit.train.state.state_case import CASES, Killer, facts, same, train


@pytest.fixture(autouse=True)
def on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build the small trainings there."""
    model, batch = cases.model, cases.batch
    monkeypatch.setattr(cases, "model", lambda *args: model(*args).to(CARD))
    monkeypatch.setattr(cases, "batch", lambda *args: batch(*args).to(CARD))


@pytest.mark.parametrize("name", sorted(CASES))
def test_interrupted_training_ends_as_an_undisturbed_one(name: str) -> None:
    """At each point of a step, on the device."""
    make, points = CASES[name]
    state, _ = undisturbed = make()
    train(undisturbed)
    wanted = facts(state)
    for point in points:
        state, _ = case = make()
        train(case, at=Killer(state, point, 3))
        assert same(facts(state), wanted), point


@pytest.mark.parametrize("free", [lambda device: 1 << 40, lambda device: 0])
def test_undo_puts_back_from_the_device_and_from_the_host(
    monkeypatch: pytest.MonkeyPatch, free: Callable[[torch.device], int]
) -> None:
    """From the host where the card is full."""
    monkeypatch.setattr(undo_module, "_free_bytes", free)
    net = torch.nn.Linear(64, 64).to(CARD)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    undo = OptimizerUndo(optimizer)

    def step() -> None:
        net(torch.ones(2, 64, device=CARD)).sum().backward()
        optimizer.step()

    step()
    wanted = [tensor.detach().clone() for tensor in net.parameters()]
    undo.take(is_required=True)
    step()
    undo.put_back()
    torch.cuda.synchronize(CARD)
    assert all(map(torch.equal, net.parameters(), wanted))

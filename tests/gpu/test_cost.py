"""What a managed step costs on the device: only figures, no limit."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.train.process_group.group import Group
from elasticd.train.state.state import State, core_of
from tests.fixtures.ranks import entered
from tests.gpu.card import CARD, PATIENCE_S, note
from tests.unit.train.state.state_case import FakeWatch, world

LAYERS, WIDTH = 24, 1024
STEPS = 50


class Settling(FakeWatch):
    """Waits for the device before each step, as a group does."""

    def __init__(self) -> None:
        super().__init__()
        self._group = Group(entered(0, 1, 0), device=CARD, backend="gloo", timeout_s=PATIENCE_S)

    def synchronize(self, mark: Any = None) -> None:
        self._group.synchronize(lambda: True, mark)


@pytest.mark.parametrize("rows", [512, 16384])
def test_step_with_and_without_elasticd(rows: int) -> None:
    """The CPU's lead over the device is what the wait takes away."""
    net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).to(CARD)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    batch = torch.randn(rows, WIDTH, device=CARD)

    def step(commit: Callable[[torch.Tensor], object]) -> None:
        loss = net(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        commit(loss)

    def seconds(commit: Callable[[torch.Tensor], object]) -> float:
        for _ in range(10):
            step(commit)
        torch.cuda.synchronize(CARD)
        began_s = time.monotonic()
        for _ in range(STEPS):
            step(commit)
        torch.cuda.synchronize(CARD)
        return (time.monotonic() - began_s) / STEPS

    bare_s = min(seconds(lambda loss: None) for _ in range(3))
    state = State(net=net, optimizer=optimizer)
    core_of(state).enter(world(), Settling())
    managed_s = min(seconds(lambda loss: state.commit(loss=loss)) for _ in range(3))
    core_of(state).leave()
    note(f"step of {rows} rows, bare", bare_s * 1000, "ms")
    note(f"step of {rows} rows, with elasticd", managed_s * 1000, "ms")
    note(f"step of {rows} rows: what it costs", 100 * (managed_s / bare_s - 1), "%")

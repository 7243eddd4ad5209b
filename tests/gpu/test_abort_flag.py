"""A step that is queued behind a kernel is left out if the flag is raised while that one runs."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from elasticd.train.device.abort_flag import AbortFlag
from elasticd.train.group_broken import GroupBroken
from elasticd.train.optimizer.parameter_change import FIRST_COMMITS
from elasticd.train.process_group.group import Group
from elasticd.train.process_group.queued_steps import QueuedSteps
from elasticd.train.state.state import State, core_of
from tests.fixtures.ranks import entered
from tests.gpu.card import CARD, PATIENCE_S, note, spin
from tests.unit.train.state.state_case import FakeWatch, world

SPIN_S = 0.3
STEPS = 40

KINDS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam": lambda each: torch.optim.Adam(each, fused=True, amsgrad=True),
    "AdamW": lambda each: torch.optim.AdamW(each, fused=True),
    "momentum": lambda each: torch.optim.SGD(each, lr=0.1, momentum=0.9, fused=True),
}


class CardWatch(FakeWatch):
    """Waits for the device as a session does."""

    def __init__(self, flag: AbortFlag) -> None:
        super().__init__()
        self.group = Group(
            entered(0, 1, 0),
            device=CARD,
            backend="gloo",
            timeout_s=PATIENCE_S,
            on_abort=flag.set,
        )

    def synchronize(self, mark: Any = None) -> None:
        self.group.synchronize(lambda: True, mark)


class Case:
    """A state on the card, in a generation with a flag."""

    def __init__(
        self, kind: str, width: int = 64, layers: int = 2, *, has_flag: bool = True
    ) -> None:
        parts = [torch.nn.Linear(width, width) for _ in range(layers)]
        self.net = torch.nn.Sequential(*parts).to(CARD)
        self.optimizer = KINDS[kind](self.net.parameters())
        self.state = State(net=self.net, optimizer=self.optimizer)
        self.core = core_of(self.state)
        self.flag = AbortFlag(CARD)
        self.watch = CardWatch(self.flag)
        self.batch = torch.randn(64, width, device=CARD)
        self.core.enter(world(), self.watch)
        if has_flag:
            self.core.guard.queued = QueuedSteps.of(
                self.flag, self.core.guard.optimizers, (), self.watch, "ignore"
            )
        for _ in range(FIRST_COMMITS + 1):
            self.step()
            self.state.commit()

    def step(self, behind_s: float = 0.0) -> None:
        self.optimizer.zero_grad()
        self.net(self.batch).square().mean().backward()
        if behind_s:
            spin(behind_s)  # As a collective whose peer is gone.
        self.optimizer.step()

    def owned(self) -> list[torch.Tensor]:
        kept = [each for entry in self.optimizer.state.values() for each in entry.values()]
        return [each.detach().clone() for each in (*self.net.parameters(), *kept)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_aborted", [True, False])
def test_step_is_made_or_left_out_by_the_flag_as_the_device_comes_to_it(
    kind: str, is_aborted: bool
) -> None:
    """The flag is raised while the device is before the step, and the host behind it."""
    case = Case(kind)
    spin(0.0)
    torch.cuda.synchronize(CARD)
    before = case.owned()
    began_s = time.monotonic()
    case.step(SPIN_S)
    assert time.monotonic() - began_s < SPIN_S / 2, "the host does not wait before the step"
    if is_aborted:
        case.watch.group.abort()
        with pytest.raises(GroupBroken):
            case.state.commit()
    else:
        case.state.commit()
    torch.cuda.synchronize(CARD)
    after = case.owned()
    assert all(map(torch.equal, before, after)) is is_aborted
    assert case.state.step == FIRST_COMMITS + 1 + (not is_aborted)
    case.core.leave()
    case.core.rollback()
    assert case.core.is_clean
    case.watch.group.close()


def test_torch_itself_refuses_a_fused_adagrad_on_a_card() -> None:
    """It has that for the CPU alone; from a torch that has it, it belongs to the others here."""
    weight = torch.nn.Parameter(torch.ones(4, device=CARD))
    weight.grad = torch.ones_like(weight)
    with pytest.raises(RuntimeError, match="fused=True"):
        torch.optim.Adagrad([weight], fused=True).step()


def test_commit_does_not_wait_for_what_was_queued_after_the_step() -> None:
    """Only for the look at the flag."""
    case = Case("AdamW")
    case.step()
    spin(SPIN_S)
    began_s = time.monotonic()
    case.state.commit()
    assert time.monotonic() - began_s < SPIN_S / 2
    torch.cuda.synchronize(CARD)
    case.core.leave()


def test_step_with_and_without_the_flag() -> None:
    """Only figures, no limit."""

    def seconds(case: Case) -> float:
        torch.cuda.synchronize(CARD)
        began_s = time.monotonic()
        for _ in range(STEPS):
            case.step()
            case.state.commit()
        torch.cuda.synchronize(CARD)
        return (time.monotonic() - began_s) / STEPS

    for has_flag in (False, True):
        case = Case("AdamW", 1024, 24, has_flag=has_flag)
        found = min(seconds(case) for _ in range(3))
        note(f"step, {'with' if has_flag else 'without'} the abort flag", found * 1000, "ms")
        case.core.leave()

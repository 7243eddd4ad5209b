"""What counts as a step's wait for other ranks."""

from typing import Any

import pytest
import torch

from elasticd.train.introspection import collective_wait as module
from elasticd.train.introspection.collective_wait import WINDOW_STEPS, StepWait
from elasticd.train.process_group.gloo_work import WakeableWork
from tests.fixtures.step_wait import end_step


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "_now_s", clock)
    return clock


def step(wait: StepWait, clock: Clock, *, compute_s: float, waits_s: float) -> None:
    """A step whose collective Python waits for."""
    clock.now_s += compute_s
    began_s = clock.now_s
    wait.begin_collective()
    clock.now_s += waits_s
    wait.waited(began_s)
    wait.waited_for_future()
    end_step(wait, clock.now_s)


def test_collectives_that_python_waits_for_add_up(clock: Clock) -> None:
    """In a loop of them the first one has the wait for the last rank, the others have none."""
    wait = StepWait()
    for _ in range(3):
        for waits_s in (0.25, 0.0, 0.0):
            began_s = clock.now_s
            wait.begin_collective()
            clock.now_s += waits_s
            wait.waited(began_s)
            clock.now_s += 0.125  # A parameter's own time.
        wait.waited_for_future()
        end_step(wait, clock.now_s)
    found = wait.summary()
    assert (found.wait_s, found.step_s, found.steps) == (0.25, 0.625, 2)
    assert wait.total_s == 0.75


def test_what_ddp_waits_for_ends_where_the_optimizer_may_step(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a future for each bucket while the backward pass goes on; the last one counts."""
    monkeypatch.setattr(module, "_graph_task", lambda: 7)
    wait = StepWait()
    for _ in range(2):
        for _ in range(3):
            wait.begin_collective()
            wait.took_future()
            clock.now_s += 0.5  # The backward pass of the layers before.
        clock.now_s += 0.25
        wait.waited_for_future()
        clock.now_s += 1.0  # The optimizer.
        end_step(wait, clock.now_s)
    found = wait.summary()
    assert (found.wait_s, found.step_s) == (0.75, 2.75)


def test_what_ddp_waits_for_ends_with_the_next_collective(clock: Clock) -> None:
    """A sum of losses between the backward pass and the optimizer, say: whose wait is short."""
    wait = StepWait()
    for _ in range(2):
        wait.took_future()
        clock.now_s += 0.25
        began_s = clock.now_s
        wait.begin_collective()
        clock.now_s += 0.125
        wait.waited(began_s)
        clock.now_s += 1.0
        wait.waited_for_future()
        end_step(wait, clock.now_s)
    assert wait.summary().wait_s == 0.375


def test_collective_within_a_backward_pass_ends_no_wait(clock: Clock) -> None:
    """Between two buckets DDP waits for nothing."""
    wait = StepWait()
    wait.took_future()

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            clock.now_s += 0.5
            wait.begin_collective()
            wait.took_future()
            return grad

    x = torch.ones(1, requires_grad=True)
    Probe.apply(x).backward()  # type: ignore[no-untyped-call]
    clock.now_s += 0.25
    wait.waited_for_future()
    end_step(wait, clock.now_s)
    assert wait.total_s == 0.25


def test_new_generation_begins_anew(clock: Clock) -> None:
    """Its ranks are others; what this process waited for in all does not go back."""
    wait = StepWait()
    for _ in range(3):
        step(wait, clock, compute_s=1.0, waits_s=0.5)
    wait.begin_generation()
    assert wait.summary().steps == 0
    clock.now_s += 100.0
    step(wait, clock, compute_s=1.0, waits_s=0.25)
    step(wait, clock, compute_s=1.0, waits_s=0.25)
    found = wait.summary()
    assert (found.wait_s, found.step_s, found.steps) == (0.25, 1.25, 1)
    assert wait.total_s == 2.0


def test_one_slow_step_in_fifty_changes_nothing(clock: Clock) -> None:
    """It saved, compiled, or evaluated."""
    wait = StepWait()
    for number in range(2 * WINDOW_STEPS):
        step(wait, clock, compute_s=0.5, waits_s=100.0 if number % 40 == 7 else 0.125)
    found = wait.summary()
    assert (found.wait_s, found.low_s, found.high_s, found.step_s) == (0.125, 0.125, 0.125, 0.625)
    assert found.steps == WINDOW_STEPS


def test_collective_counts_the_time_for_which_it_is_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In slices, as the group may be given up meanwhile."""
    wait = StepWait()

    class Inner:
        slices = 3

        def wait(self, timeout: object) -> bool:
            clock.now_s += 0.2
            self.slices -= 1
            if self.slices:
                raise RuntimeError("not yet")
            return True

        def is_completed(self) -> bool:
            return False

        def get_future(self) -> torch.futures.Future[None]:
            return torch.futures.Future()

    monkeypatch.setattr("elasticd.train.process_group.gloo_work.step_wait", wait)
    monkeypatch.setattr("elasticd.train.process_group.gloo_work.time.monotonic", clock)
    assert WakeableWork(Inner(), None, {}).wait()
    end_step(wait, clock.now_s)
    assert wait.total_s == pytest.approx(0.6)

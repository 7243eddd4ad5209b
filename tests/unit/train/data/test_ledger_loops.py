"""Loops that hold a batch, or commit before they step: what the ledger says is what was trained."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.data.loader import Loader, loader_core_of
from elasticd.train.interrupt import Interrupted
from elasticd.train.state.state import State
from tests.unit.train.data.loader_case import Watch
from tests.unit.train.state.state_case import entered

SAMPLES = 10
BATCH = 2
EPOCHS = 2


class Rows:
    """Sample i is the number i."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index))


class Training:
    """What a script has applied, as its optimizer knows it."""

    def __init__(self, *, with_scaler: bool = False, **options: Any) -> None:
        self.model = torch.nn.Linear(1, 1)
        self.data = Loader(Rows(), BATCH, shuffle=False, **options)
        scaler: dict[str, Any] = (
            {"scaler": torch.amp.GradScaler("cpu", init_scale=2.0)} if with_scaler else {}
        )
        self.state: Any = State(
            model=self.model,
            optimizer=torch.optim.SGD(self.model.parameters(), lr=1e-4),
            data=self.data,
            **scaler,
        )
        self.applied: list[int] = []
        self.waiting: list[int] = []
        self.weights: list[float] = []

    def backward(self, x: torch.Tensor) -> None:
        self.weights.append(self.data.weight)
        self.state.model(x[:, None]).sum().backward()
        self.waiting += [int(each) for each in x]

    def step(self) -> None:
        self.state.optimizer.step()
        self.state.optimizer.zero_grad()

    def count(self) -> None:
        """Those of the step that has just been committed."""
        self.applied += self.waiting
        self.waiting = []


Loop = Callable[[Training, Callable[[], None]], None]


def prefetching(training: Training, may_fail: Callable[[], None]) -> None:
    """As NVIDIA's examples do it: the next batch is fetched before the step."""
    batches = iter(training.state.data)
    following = next(batches, None)
    while following is not None:
        x = following
        following = next(batches, None)
        may_fail()
        training.backward(x)
        training.step()
        training.state.commit()
        training.count()
        may_fail()


def micro_batches(training: Training, may_fail: Callable[[], None]) -> None:
    """A commit for each batch, a step for each second one and for the last."""
    for index, x in enumerate(training.state.data):
        may_fail()
        training.backward(x)
        is_step = index % 2 == 1 or int(x[-1]) == SAMPLES - 1
        if is_step:
            training.step()
        training.state.commit()
        if is_step:
            training.count()
        may_fail()


def groups(training: Training, may_fail: Callable[[], None]) -> None:
    """Some batches for a step, and fewer for the last: nothing to suspect."""
    batches: Iterator[torch.Tensor] = iter(training.state.data)
    while group := [x for _, x in zip(range(3), batches, strict=False)]:
        may_fail()
        for x in group:
            training.backward(x)
        training.step()
        training.state.commit()
        training.count()
        may_fail()


def early_tail(training: Training, may_fail: Callable[[], None]) -> None:
    """The last group is known to be the last before the loader says so."""
    for index, x in enumerate(training.state.data):
        may_fail()
        training.backward(x)
        if index % 3 == 2 or int(x[-1]) == SAMPLES - 1:
            training.step()
            training.state.commit()
            training.count()
        may_fail()


LOOPS: dict[str, tuple[Loop, dict[str, Any]]] = {
    "prefetching": (prefetching, {"read_ahead": True}),
    "micro-batches": (micro_batches, {}),
    "groups": (groups, {}),
    "early tail": (early_tail, {}),
}


def run(training: Training, loop: Loop, fail_at: int) -> int:
    """Train to the end, with one failure; return how many points were passed."""
    points = 0

    def may_fail() -> None:
        nonlocal points
        points += 1
        if points == fail_at:
            raise Interrupted

    while True:
        try:
            with entered(training.state):
                for _ in training.state.epochs(EPOCHS):
                    loop(training, may_fail)
                return points
        except Interrupted:
            training.waiting = []


@pytest.mark.parametrize("name", LOOPS)
def test_each_sample_is_applied_once_whenever_the_loop_is_interrupted(name: str) -> None:
    """And the ledger, which counts positions, says the same."""
    loop, options = LOOPS[name]
    points = run(Training(**options), loop, 0)
    for fail_at in range(1, points + 1):
        training = Training(**options)
        run(training, loop, fail_at)
        assert sorted(training.applied) == sorted([*range(SAMPLES)] * EPOCHS), fail_at
        assert "20 samples (0 repeated, 0 skipped)" in training.state.summary()


def test_weight_is_that_of_the_batch_that_is_trained_on() -> None:
    """The tail is half a batch; the newest batch is not the one in hand."""
    training = Training(read_ahead=True)
    loader_core_of(training.data).batch_size = 4
    loader_core_of(training.data).place(0, 3, Watch())
    seen = []
    batches = iter(training.data)
    following = next(batches, None)
    while following is not None:
        x, following = following, next(batches, None)
        seen.append((len(x), training.data.weight))
        loader_core_of(training.data).commit()
    assert seen == [(2, 1.5), (2, 1.5), (1, 1.5)]


def test_loop_that_reads_ahead_and_has_not_said_so_is_refused() -> None:
    """Before a third step; with what to write, also if it is no such loop."""
    training = Training()
    with pytest.raises(CallError, match=r"took 2 batches.*1 before the second.*read_ahead=True"):
        run(training, prefetching, 0)
    assert training.state.step <= 2
    run(Training(read_ahead=False), prefetching, 0)


def test_batch_that_is_held_when_a_loop_is_left_is_delivered_again() -> None:
    """Nobody has trained on it."""
    loader = Loader(Rows(), BATCH, shuffle=False, read_ahead=True)
    batches = iter(loader)
    assert [next(batches).tolist(), next(batches).tolist()] == [[0, 1], [2, 3]]
    loader_core_of(loader).commit()
    assert loader.consumed == 2
    assert next(iter(loader)).tolist() == [2, 3]


def test_commits_that_wait_for_a_step_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It is allowed, and costs what was done since the last step."""
    run(Training(), micro_batches, 0)
    assert capsys.readouterr().err.count("without an optimizer's step") == 1


def test_epochs_that_are_used_up_before_they_are_trained_are_refused() -> None:
    """After a failure none would be left; a loop whose first epoch has nothing left is none."""
    state = Training().state
    with entered(state), pytest.raises(CallError, match=r"list\(state\.epochs\(10\)\)"):
        list(state.epochs(3))
    assert state.epoch == 2, "the last of them did not end"

    training = Training()
    with entered(training.state):
        for epoch in training.state.epochs(3):
            for x in training.state.data if epoch else ():
                training.state.optimizer.zero_grad()
                training.state.model(x[:, None]).sum().backward()
                training.state.optimizer.step()
                training.state.commit()
    assert training.state.epoch == 3


@pytest.mark.parametrize("is_collecting", [True, False])
def test_gradients_of_a_second_optimizer_that_wait_over_commits_are_said_once(
    is_collecting: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure loses them; not said of gradients that lie there, or are made anew."""
    first, second = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    state = State(
        model=torch.nn.Sequential(first, second),
        often=torch.optim.SGD(first.parameters(), 0.1),
        seldom=torch.optim.SGD(second.parameters(), 0.1),
        data=Loader(Rows(), BATCH, shuffle=False),
    )
    with entered(state):
        for x in state.data:
            state.often.zero_grad()
            if not is_collecting and state.step % 2:
                state.seldom.zero_grad()
            if is_collecting or state.step % 2:
                state.model(x[:, None]).sum().backward()
            state.often.step()
            state.commit()
    said = capsys.readouterr().err
    assert said.count("wait for its step") == is_collecting, said


def test_step_that_a_scaler_skips_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Its gradients are there and nobody has used them, and nobody will."""
    training = Training(with_scaler=True)
    state = training.state
    with entered(state):
        for x in state.data:
            state.optimizer.zero_grad()
            state.scaler.scale(state.model(x[:, None]).sum()).backward()
            if state.step == 1:
                state.model.weight.grad.fill_(float("inf"))
                state.scaler.unscale_(state.optimizer)
            state.scaler.step(state.optimizer)
            state.scaler.update()
            state.commit()
            assert state.data.consumed == BATCH * state.step
    assert not capsys.readouterr().err

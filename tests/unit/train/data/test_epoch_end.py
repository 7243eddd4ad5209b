"""Gradients that wait over the end of an epoch: a failure before their step makes them again."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch

from elasticd.train.data.loader import Loader
from elasticd.train.interrupt import Interrupted
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import entered

ROWS = torch.arange(10.0)
EPOCHS = 3
GROUP = 3
"""Batches for a step: of the five of an epoch two are left, and more after the next one."""

MayFail = Callable[[], None]


class Script:
    """A step for each third batch over all epochs, and a learning rate for each epoch."""

    def __init__(self, *, is_zeroed_first: bool = False, to_none: bool = True) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.5)
        self.state: Any = State(
            model=self.model,
            optimizer=optimizer,
            schedule=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
            data=Loader(ROWS, 2),
            batches=0,
        )
        self._is_zeroed_first, self._to_none = is_zeroed_first, to_none

    def train(self, may_fail: MayFail) -> None:
        for _ in self.state.epochs(EPOCHS):
            for x in self.state.data:
                self._take(x, may_fail)
            may_fail()
            self.state.schedule.step()
            may_fail()

    def _take(self, x: torch.Tensor, may_fail: MayFail) -> None:
        state = self.state
        if self._is_zeroed_first and state.batches % GROUP == 0:
            state.optimizer.zero_grad(set_to_none=self._to_none)
        noise = torch.rand(len(x), 1)
        (state.model(x[:, None] + noise) ** 2).mean().backward()
        state.batches += 1
        may_fail()
        if state.batches % GROUP == 0:
            state.optimizer.step()
            if not self._is_zeroed_first:
                state.optimizer.zero_grad(set_to_none=self._to_none)
            state.commit()

    def result(self) -> tuple[Any, ...]:
        weights = [each.tolist() for each in self.model.parameters()]
        return (*weights, self.state.schedule.get_last_lr(), self.state.summary())


def trained(script: Script, fail_at: int = 0) -> int:
    """Train to the end, with one failure; return how many points were passed."""
    points = 0

    def may_fail() -> None:
        nonlocal points
        points += 1
        if points == fail_at:
            raise Interrupted

    while True:
        try:
            with entered(script.state):
                script.train(may_fail)
            return points
        except Interrupted:
            continue


@pytest.mark.parametrize(
    "build",
    [
        Script,
        partial(Script, to_none=False),
        partial(Script, is_zeroed_first=True),
        partial(Script, is_zeroed_first=True, to_none=False),
    ],
    ids=["cleared", "zeroed", "cleared first", "zeroed first"],
)
def test_failure_at_any_point_changes_nothing(
    build: Callable[[], Script], capsys: pytest.CaptureFixture[str]
) -> None:
    """The step takes the gradients of both epochs, and the end of the first is done again."""
    undisturbed = build()
    points = trained(undisturbed)
    for fail_at in range(1, points + 1):
        script = build()
        trained(script, fail_at)
        assert script.result() == undisturbed.result(), fail_at
    assert "3 epochs, 30 samples (0 repeated, 0 skipped)" in undisturbed.state.summary()
    assert "gradients" not in capsys.readouterr().err


def test_another_rank_gets_the_epoch_that_waits() -> None:
    """One whose process is new, from one that was interrupted between the epoch and the step."""
    undisturbed, script, other = Script(), Script(), Script()
    trained(undisturbed)
    with pytest.raises(Interrupted), entered(script.state):
        script.train(partial(_fail_in, script, 6))
    core = core_of(script.state)
    core.rollback()
    assert (core.is_clean, core.position) == (True, (1, 0))
    core_of(other.state).load(core.tree(), core.position)
    trained(other)
    assert other.result() == undisturbed.result()


def _fail_in(script: Script, batches: int) -> None:
    if script.state.batches == batches:
        raise Interrupted


Loop = Callable[[Any], Iterator[None]]


def zeroed_first(state: Any, x: torch.Tensor, *, to_none: bool) -> None:
    state.optimizer.zero_grad(set_to_none=to_none)
    state.model(x[:, None]).sum().backward()
    state.optimizer.step()
    state.commit()


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("has_batch", ["no", "of an evaluation", "in hand"])
def test_gradients_of_a_step_that_was_made_hold_nothing_up(to_none: bool, has_batch: str) -> None:
    """They lie there at the end of an epoch, whatever batches no commit has counted."""
    model = torch.nn.Linear(1, 1)
    state: Any = State(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
        data=Loader(ROWS, 2),
        held_out=Loader(ROWS, 2),
    )
    with entered(state):
        for epoch in state.epochs(EPOCHS):
            assert core_of(state).position[1] == epoch == state.epoch
            for index, x in enumerate(state.data):
                if has_batch == "in hand" and index == 3:
                    break
                zeroed_first(state, x, to_none=to_none)
            if has_batch == "of an evaluation":
                with torch.no_grad():
                    assert len([state.model(x[:, None]) for x in state.held_out]) == 5


def test_epoch_that_is_held_is_the_scripts_next_one_and_the_last_is_committed() -> None:
    script = Script()
    state = script.state
    with entered(state):
        seen = []
        for epoch in state.epochs(EPOCHS):
            seen.append((epoch, state.epoch, core_of(state).position[1]))
            for x in state.data:
                script._take(x, lambda: None)
    assert seen == [(0, 0, 0), (1, 1, 0), (2, 2, 1)]
    assert core_of(state).position == (5, EPOCHS)


@pytest.mark.parametrize(
    "why", ["commit for each batch", "commit in the next epoch", "other parameters", "second epoch"]
)
def test_what_cannot_be_made_again_is_said_once(
    why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A commit has kept what the epoch left behind, or is to keep what its end does."""
    script = Script()
    state = script.state
    with entered(state):
        for epoch in state.epochs(EPOCHS + 1):
            if why == "commit in the next epoch" and epoch == 1:
                state.commit()
            for x in state.data:
                if why == "second epoch" and epoch:
                    state.model(x[:, None]).sum().backward()
                    continue
                script._take(x, lambda: None)
                if why == "commit for each batch":
                    state.commit()
            if why == "other parameters":
                with torch.no_grad():
                    script.model.weight.clamp_(-0.01, 0.01)
    said = capsys.readouterr().err
    assert said.count("Make a step with the last batches of each epoch") == 1, said
    assert core_of(state).data_totals.samples == 10 * (EPOCHS + 1)


@pytest.mark.parametrize("has_loader", [False, True])
def test_epoch_that_begins_anew_without_a_loader_is_said_once(
    has_loader: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a script with batches of torch's own DataLoader elasticd does not know the position."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data: Any = {"data": Loader(ROWS, 2)} if has_loader else {}
    state: Any = State(model=model, optimizer=optimizer, **data)

    def step(x: torch.Tensor) -> None:
        state.optimizer.zero_grad()
        state.model(x[:, None]).sum().backward()
        state.optimizer.step()
        state.commit()

    def train(fails: bool) -> None:
        for epoch in state.epochs(2):
            for x in state.data if has_loader else ROWS.reshape(-1, 2):
                step(x)
                if epoch == 1 and fails:
                    raise Interrupted

    for fails in (True, True, False):
        with suppress(Interrupted), entered(state):
            train(fails)
    told = capsys.readouterr().err
    assert told.count("epoch 1 begins anew after 1 of its steps") == (not has_loader)
    assert told.count("begins anew") == (not has_loader)

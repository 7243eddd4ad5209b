"""A loop over epochs that begins anew with each world is told, and no other loop is."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import elasticd
from elasticd.train.data.loader import Loader
from elasticd.train.state.state import State


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ELASTICD_AGENT", "RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


HEAD = "for epoch in range(count)"


def state_of_three_batches() -> Any:
    return State(data=Loader(torch.arange(6), 2, shuffle=False), done=0)


def over_epochs(state: Any, count: int) -> None:
    for epoch in range(count):
        for _ in state.data:
            state.commit(epoch=epoch)


def shown_as_progress(data: Any) -> Iterator[Any]:
    for each in data:  # noqa: UP028
        yield each


def of_a_function(state: Any, count: int) -> None:
    def one() -> None:
        for _ in shown_as_progress(state.data):
            state.commit()

    for epoch in range(count):
        one()
        del epoch


@pytest.mark.parametrize("loop", [over_epochs, of_a_function])
def test_own_loop_over_epochs_is_told_once_at_its_second_pass(
    loop: Callable[[Any, int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """After a failure it would make all its passes again, beside those that were made."""
    state, told = state_of_three_batches(), []
    for _ in range(2):
        elasticd.run(lambda state, world: loop(state, 3), state)
        told.append(capfd.readouterr().err.count(f"`{HEAD}` begins anew"))
    assert told == [1, 0]


def by_the_state(state: Any) -> None:
    for _ in state.epochs(3):
        for _ in state.data:
            state.commit()


def from_where_it_stood(state: Any) -> None:
    for _ in range(state.data.epoch, 3):
        for _ in state.data:
            state.commit()


def to_a_step(state: Any) -> None:
    for _ in range(9):
        for _ in state.data:
            if state.step >= 7:
                return
            state.commit()


def with_a_value_of_its_own(state: Any) -> None:
    for index in range(3):
        for _ in state.data:
            state.commit()
        state.done = index


def accumulating(state: Any) -> None:
    """Passes of one step."""
    for _ in state.epochs(2):
        for _ in range(2):
            for _ in state.data:
                pass
        state.commit()


def without_an_end(state: Any) -> None:
    shown = 0
    while shown < 9:
        for _ in state.data:
            shown += 1
            state.commit()


@pytest.mark.parametrize(
    "loop",
    [
        by_the_state,
        from_where_it_stood,
        to_a_step,
        with_a_value_of_its_own,
        accumulating,
        without_an_end,
    ],
)
def test_other_loops_are_not_told(
    loop: Callable[[Any], None], capfd: pytest.CaptureFixture[str]
) -> None:
    elasticd.run(lambda state, world: loop(state), state_of_three_batches())
    assert "begins anew" not in capfd.readouterr().err

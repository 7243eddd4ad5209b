"""What shows kept batches again is refused before it does so; what begins a new pass is not."""

import gc
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.data.loader import Loader
from elasticd.train.state.state import State
from tests.unit.train.state.state_case import entered

again = itertools.cycle


def of_three_batches() -> Any:
    return State(data=Loader(torch.arange(6), 2, shuffle=False))


def test_cycle_is_refused_at_the_end_of_its_first_pass() -> None:
    """After a failure it would show a part of the epoch for ever."""
    with entered(state := of_three_batches()):
        batches = zip(itertools.cycle(state.data), range(4), strict=False)
        for _ in range(3):
            next(batches)
            state.commit()
        with pytest.raises(CallError, match=r"itertools\.cycle keeps the batches"):
            next(batches)


def test_cycle_by_another_name_is_refused() -> None:
    """A global one of the script's."""
    with entered(state := of_three_batches()):
        batches = again(state.data)
        for _ in range(3):
            next(batches)
            state.commit()
        with pytest.raises(CallError, match=r"itertools\.cycle keeps the batches"):
            next(batches)


def test_plain_loop_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at all objects takes as long as a collection."""
    monkeypatch.setattr(gc, "get_referrers", lambda _: pytest.fail("it looked"))
    with entered(state := of_three_batches()):
        for _ in state.data:
            state.commit()
        for _, _ in enumerate(state.data):
            state.commit()


def test_generator_that_begins_anew_is_no_cycle() -> None:
    def forever(data: Loader) -> Iterator[torch.Tensor]:
        while True:
            yield from data

    with entered(state := of_three_batches()):
        shown = []
        for batch in itertools.islice(forever(state.data), 7):
            shown.append(batch.tolist())
            state.commit()
    assert shown == [[0, 1], [2, 3], [4, 5]] * 2 + [[0, 1]]


def test_cycle_outside_of_train_is_the_scripts_affair() -> None:
    data = Loader(torch.arange(6), 2, shuffle=False)
    assert len(list(itertools.islice(itertools.cycle(data), 7))) == 7

"""What shows kept batches again is refused before it does so; what begins a new pass is not."""

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.data.loader import Loader
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import entered

again = itertools.cycle


def of_three_batches() -> Any:
    return State(data=Loader(torch.arange(6), 2, shuffle=False))


def that_trains(**more: Any) -> Any:
    """With three batches of `data` and two of `held_out`."""
    net = torch.nn.Linear(1, 1)
    data, held_out = (Loader(torch.arange(count), 2, shuffle=False) for count in (6, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return State(model=net, optimizer=optimizer, data=data, held_out=held_out, **more)


def backward(state: Any, batch: torch.Tensor) -> None:
    state.model(batch[:, None].float()).square().mean().backward()


def step(state: Any, batch: torch.Tensor) -> None:
    state.optimizer.zero_grad()
    backward(state, batch)
    state.optimizer.step()
    state.commit()


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


def all_of(state: Any, batches: Iterator[torch.Tensor]) -> None:
    for batch in batches:
        step(state, batch)


# --- steps without a batch that was given for them ------------------------------------------------


def of_a_list(state: Any) -> Iterator[torch.Tensor]:
    return iter(list(state.data))


def of_a_list_with_evaluations(state: Any) -> Iterator[torch.Tensor]:
    """What is committed between two steps does not hide them."""
    for batch in list(state.data):
        yield batch
        state.commit()


def of_a_cache(state: Any) -> Iterator[torch.Tensor]:
    cache = dict(enumerate(state.data))
    return (cache[index % 3] for index in range(9))


def of_two_lists(state: Any) -> Iterator[torch.Tensor]:
    """Of what it trains on, and of what it evaluates on."""
    batches, held_out = list(state.data), list(state.held_out)
    yield from batches
    assert held_out


def of_a_queue(state: Any) -> Iterator[torch.Tensor]:
    queue = list(state.data)
    while queue:
        yield queue.pop(0)


KEEPING: dict[str, Callable[[Any], Iterator[torch.Tensor]]] = {
    "list": of_a_list,
    "list and evaluations": of_a_list_with_evaluations,
    "cache": of_a_cache,
    "two lists": of_two_lists,
    "queue": of_a_queue,
    "pairs": lambda state: iter([batch for _, batch in [(0, each) for each in state.data]]),
    "tuple in a loop over epochs": lambda state: (
        batch for batches in [tuple(state.data)] for _ in state.epochs(3) for batch in batches
    ),
}


@pytest.mark.parametrize("batches", KEEPING.values(), ids=KEEPING)
def test_second_step_of_a_pass_that_was_kept_is_refused(
    batches: Callable[[Any], Iterator[torch.Tensor]],
) -> None:
    """The first commit counts all of it: after a failure the script would get no batch."""
    with entered(state := that_trains()):
        shown = batches(state)
        step(state, next(shown))
        with pytest.raises(CallError, match=r"state\.data gave all 3 batches .* that it keeps"):
            all_of(state, shown)


def test_kept_pass_is_seen_though_its_first_commits_had_no_step() -> None:
    """Gradients that wait for a step, and steps that a scaler skips."""
    with entered(state := that_trains()):
        for index, batch in enumerate(kept := list(state.data)):
            backward(state, batch)
            if index == 1:
                state.optimizer.step()
            state.commit()
        with pytest.raises(CallError, match="that it keeps"):
            step(state, kept[0])


def test_copies_of_a_pass_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    """On a device, say: who holds them cannot be seen."""
    with entered(state := that_trains()):
        for batch in [each.float() for each in state.data]:
            step(state, batch)
    said = capfd.readouterr().err
    assert said.count("state.data gave a whole pass to one commit, and a step was committed") == 1


def shown_as_progress(data: Any) -> Iterator[Any]:
    """As tqdm does it."""
    for each in data:  # noqa: UP028
        yield each


CYCLES: dict[str, Callable[[Any], Any]] = {
    "tqdm": lambda data: itertools.cycle(shown_as_progress(data)),
    "enumerate": lambda data: (batch for _, batch in itertools.cycle(enumerate(data))),
    "map": lambda data: itertools.cycle(map(torch.Tensor.clone, data)),
    "zip": lambda data: (one for one, _ in itertools.cycle(zip(data, range(9), strict=False))),
}


@pytest.mark.parametrize("cycle", CYCLES.values(), ids=CYCLES)
def test_cycle_around_what_wraps_a_loader_is_refused_at_its_first_kept_batch(
    cycle: Callable[[Any], Any],
) -> None:
    with entered(state := that_trains()):
        batches = cycle(state.data)
        for _ in range(3):
            step(state, next(batches))
        with pytest.raises(CallError, match=r"itertools\.cycle keeps the batches"):
            step(state, next(batches))
    assert state.step == 3


def test_steps_on_one_batch_are_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """They may be meant; a failure gives them the next one."""
    state = that_trains()
    for _ in range(2):
        with entered(state):
            batch = next(iter(state.data))
            for _ in range(102):
                step(state, batch)
    said = capfd.readouterr().err
    assert said.count("100 steps were committed without a new batch") == 1


# --- what is none of that -------------------------------------------------------------------------


def accumulate(state: Any) -> None:
    """One step for an epoch."""
    for _ in state.epochs(3):
        for batch in state.data:
            backward(state, batch)
        state.optimizer.step()
        state.commit()


def only_at_the_end_of_epochs(state: Any) -> None:
    for _ in state.epochs(3):
        for batch in state.data:
            backward(state, batch)
            state.optimizer.step()


def evaluate(state: Any) -> None:
    """After each epoch, with commits of what came of it."""
    for _ in state.epochs(3):
        for batch in state.data:
            step(state, batch)
        list(state.held_out)
        state.commit()
        state.commit()


def evaluate_between_steps(state: Any) -> None:
    """Of two optimizers, say, that take turns on a batch."""
    for _ in range(2):
        for batch in state.data:
            list(state.held_out)
            step(state, batch)
            step(state, batch)
            list(state.held_out)


def read_before(state: Any) -> None:
    """A pass for statistics, and only then the first step."""
    total = sum(int(batch.sum()) for batch in state.data)
    assert total == 15
    for batch in state.data:
        step(state, batch)
        step(state, batch)


def keep_in_the_state(state: Any) -> None:
    """What was made of the batches is in the state before the first step."""
    state.made = [batch.clone() for batch in state.data]
    state.commit()
    for batch in state.made:
        step(state, batch)


def take_turns(state: Any) -> None:
    """A cycle of something else, as long as a pass, and steps that need no batch."""
    turns = itertools.cycle(range(3))
    for batch in state.data:
        next(turns)
        step(state, batch)
        step(state, batch)
    for _ in range(5):
        step(state, torch.ones(2) * next(turns))


def of_whole_passes(state: Any) -> None:
    """A closure that reads all data each time it is called."""

    def closure() -> None:
        state.optimizer.zero_grad()
        for batch in state.data:
            backward(state, batch)

    for _ in range(3):
        closure()
        state.optimizer.step(closure)
        state.commit()


def evaluate_beside_other_data(state: Any) -> None:
    """What it trains on comes from no Loader."""
    for index in range(9):
        step(state, torch.randn(2))
        if index % 3 == 0:
            with torch.no_grad():
                for batch in state.held_out:
                    state.model(batch[:, None].float())


def evaluate_between_steps_on_a_batch(state: Any) -> None:
    for batch in state.data:
        step(state, batch)
        with torch.no_grad():
            list(state.held_out)
        step(state, batch)
        step(state, batch)


def take_turns_of_objects(state: Any) -> None:
    """A cycle of as many things as a pass has batches."""
    turns = itertools.cycle([torch.sin, torch.cos])
    for _ in range(3):
        next(turns)
    for batch in state.data:
        list(state.held_out)
        step(state, batch)
        step(state, next(turns)(batch.float()))


LEGAL = (
    evaluate_beside_other_data, evaluate_between_steps_on_a_batch, take_turns_of_objects,
    accumulate, only_at_the_end_of_epochs, evaluate, evaluate_between_steps, read_before,
    keep_in_the_state, take_turns, of_whole_passes,
)  # fmt: skip


@pytest.mark.parametrize("loop", LEGAL, ids=lambda loop: loop.__name__)
def test_loop_that_keeps_no_batch_goes_on(
    loop: Callable[[Any], None], capfd: pytest.CaptureFixture[str]
) -> None:
    with entered(state := that_trains(made=[])):
        loop(state)
    assert "without a new batch" not in capfd.readouterr().err


def test_steps_without_a_batch_after_a_whole_pass_go_on(capfd: pytest.CaptureFixture[str]) -> None:
    """Gradients of a pass, and then a step on noise; a line says what that might have been."""
    with entered(state := that_trains()):
        for _ in range(2):
            state.optimizer.zero_grad()
            for batch in state.data:
                backward(state, batch)
            state.optimizer.step()
            state.commit()
            step(state, torch.randn(2))
    assert state.step == 4
    assert capfd.readouterr().err.count("without a new batch") == 1


def test_nothing_is_asked_in_a_loop_over_epochs_but_at_its_beginning() -> None:
    """A commit costs what it did."""
    with entered(state := that_trains()):
        for index in range(4):
            for batch in state.data:
                step(state, batch)
                assert len(core_of(state)._checks) == (state.step == 1), (index, state.step)
            assert len(core_of(state)._checks) == (index == 0)


def test_look_for_cycles_is_one_in_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as a collection."""
    looks: list[str] = []

    def look() -> list[object]:
        looks.append("")
        return []

    monkeypatch.setattr(gc, "get_objects", look)
    with entered(state := that_trains()):
        for _ in range(4):
            for batch in state.data:
                step(state, batch)
            for _ in range(3):
                step(state, torch.ones(2))
    assert len(looks) == 1

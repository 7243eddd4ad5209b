"""What is written to parameters beside their optimizer is never taken for the state of a commit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
import torch

from elasticd.train.interrupt import Interrupted
from elasticd.train.optimizer import parameter_change, step_guard
from elasticd.train.optimizer.parameter_change import (
    COMMITS_APART,
    FIRST_COMMITS,
    PREFIX_ELEMENTS,
    QUIET_COMMITS,
    SHARE,
    ParameterMonitor,
    is_probed,
)
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import (
    Killer,
    entered,
    facts,
    model,
    plain_step,
    same,
    train,
)

STEP = 7
"""No commit at which a script's habits are looked at."""


@pytest.fixture(autouse=True)
def _is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large to be copied as a generation begins."""
    monkeypatch.setattr(step_guard, "COPY_LIMIT_BYTES", 0)


def counted(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach()


def uncounted(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.data


WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "counted by torch": counted,
    "through tensor.data": uncounted,
}


def made() -> State:
    net = model()
    return State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))


@contextmanager
def swapped(state: State, way: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """An evaluation with other parameters, which puts the old ones back whatever happens."""
    before = put_others(state, way)
    try:
        yield
    finally:
        put_back(state, way, before)


def put_others(state: State, way: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    before = [each.detach().clone() for each in state.model.parameters()]
    for each in state.model.parameters():
        way(each).mul_(0.5)
    return before


def put_back(
    state: State, way: Callable[[torch.Tensor], torch.Tensor], before: list[torch.Tensor]
) -> None:
    for each, value in zip(state.model.parameters(), before, strict=True):
        way(each).copy_(value)


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_average_that_is_evaluated_is_not_taken_for_the_state(way: str, is_paused: bool) -> None:
    """An evaluation of it is interrupted, and does not put the parameters back."""
    state = made()
    with suppress(Interrupted), entered(state):
        while state.step < STEP:
            plain_step(state, lambda _: None)
        if is_paused:
            with state.pause("evaluation"):
                put_others(state, WAYS[way])
                raise Interrupted
        put_others(state, WAYS[way])
        raise Interrupted
    core_of(state).rollback()
    assert not core_of(state).is_clean
    assert not core_of(state).has_stepped, "it would stand in for the state of a commit"


@pytest.mark.parametrize("way", WAYS)
def test_pause_sees_that_some_parameters_were_replaced_and_not_put_back(way: str) -> None:
    """Those of a part of the model, which has neither the first parameter nor the last."""
    state = made()
    with suppress(Interrupted), entered(state):
        while state.step < STEP:
            plain_step(state, lambda _: None)
        with state.pause("evaluation"):
            WAYS[way](state.model[1].weight).mul_(0.5)
            raise Interrupted
    core_of(state).rollback()
    assert not core_of(state).is_clean


@pytest.mark.parametrize("way", WAYS)
def test_pause_within_a_pause_ends_neither_it_nor_what_it_knows(way: str) -> None:
    """An evaluation that saves its result; the parameters are another's meanwhile."""
    state = made()
    with entered(state) as session:
        while state.step < STEP:
            plain_step(state, lambda _: None)
        before = facts(state)
        with state.pause("evaluation"):
            with swapped(state, WAYS[way]), state.pause("saving"):
                pass
            assert session.paused == ["evaluation", "saving", "evaluation"]
        assert session.paused[-1] is None
        assert core_of(state).is_clean
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)


@pytest.mark.parametrize("way", WAYS)
def test_parameters_that_an_evaluation_puts_back_are_those_of_the_commit(way: str) -> None:
    """Where it says that it pauses, or the script was seen to do it before."""
    for is_paused in (True, False):
        state = made()
        with suppress(Interrupted), entered(state):
            while state.step < STEP:
                plain_step(state, lambda _: None)
                if state.step == 3:
                    with swapped(state, WAYS[way]):
                        pass
            before = facts(state)
            if is_paused:
                with state.pause("evaluation"), swapped(state, WAYS[way]):
                    raise Interrupted
            with swapped(state, WAYS[way]):
                raise Interrupted
        core_of(state).rollback()
        assert core_of(state).is_clean
        assert same(facts(state), before)


def test_paused_evaluation_of_a_script_that_is_known_for_it_is_undone() -> None:
    """As an optimizer does that trains other parameters than it evaluates (schedule-free)."""
    state = made()
    with suppress(Interrupted), entered(state):
        while state.step < STEP:
            plain_step(state, lambda _: None)
            if state.step == 3:
                put_back(state, counted, put_others(state, counted))
        before = facts(state)
        with state.pause("evaluation"):
            put_others(state, counted)
            raise Interrupted
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)


def test_what_is_written_at_each_step_is_undone_once_it_is_known() -> None:
    """By the first steps: later nobody looks, but there is a copy."""
    state = made()

    def step(at: Callable[[str], None] = lambda _: None) -> None:
        for each in state.model.parameters():
            each.data.mul_(0.9)
        plain_step(state, at)

    with suppress(Interrupted), entered(state):
        while state.step < STEP:
            step()
        before = facts(state)
        step(Killer(state, "backward", STEP))
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)


def test_building_what_wraps_the_model_is_no_change() -> None:
    """DistributedDataParallel writes to each parameter what is there."""
    state = made()
    with entered(state):
        plain_step(state, lambda _: None)
    before = facts(state)
    with suppress(Interrupted), entered(state):
        for each in state.model.parameters():
            each.detach().copy_(each.detach().clone())
        plain_step(state, Killer(state, "backward", 1))
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["forward", "commit"])
def test_write_to_a_part_of_a_parameter_between_step_and_commit_is_of_that_step(
    way: str, point: str
) -> None:
    """Elsewhere it could be done twice: the beginning of a parameter does not show it."""

    def step(state: State, at: Callable[[str], None]) -> None:
        state.optimizer.zero_grad()
        loss = state.model(torch.randn(6, 4)).square().mean()
        at("forward")
        loss.backward()
        state.optimizer.step()
        WAYS[way](state.model[0].weight)[-1].mul_(0.5)
        state.commit()
        at("commit")

    state, undisturbed = made(), made()
    train((undisturbed, step), steps=STEP + 2)
    assert train((state, step), at=Killer(state, point, STEP), steps=STEP + 2) == 1
    assert same(facts(state), facts(undisturbed))


def write_beyond_the_beginning(state: State, way: str) -> None:
    """A part that has neither a parameter's first elements nor one that is the first or last."""
    weight = state.model[0].weight
    assert weight.numel() > PREFIX_ELEMENTS
    WAYS[way](weight)[-1].mul_(0.5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["begin", "forward", "backward", "step", "commit"])
@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_write_to_a_part_of_a_parameter_before_each_step_is_not_done_twice(
    way: str, point: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first steps show that the script does it; from then on it is undone."""
    monkeypatch.setattr(step_guard, "COPY_LIMIT_BYTES", limit)

    def step(state: State, at: Callable[[str], None]) -> None:
        write_beyond_the_beginning(state, way)
        plain_step(state, at)

    first = 1 if point == "commit" else 0  # It is counted by then.
    for killed_at in (first, STEP) if limit else (STEP,):
        state, undisturbed = made(), made()
        train((undisturbed, step), steps=STEP + 2)
        assert train((state, step), at=Killer(state, point, killed_at), steps=STEP + 2) == 1
        assert same(facts(state), facts(undisturbed))


@pytest.mark.parametrize("way", WAYS)
def test_second_write_to_a_part_of_a_parameter_is_seen_however_rare_they_are(way: str) -> None:
    """Once in ten steps, where nothing is expected any more."""
    state, killed_at = made(), COMMITS_APART * 10 + 9

    def step(at: Callable[[str], None] = lambda _: None) -> None:
        if state.step % 10 == 9:
            write_beyond_the_beginning(state, way)
        plain_step(state, at)

    with suppress(Interrupted), entered(state):
        while state.step < killed_at:
            step()
        step(Killer(state, "backward", killed_at))
    core_of(state).rollback()
    assert not core_of(state).is_clean
    assert not core_of(state).has_stepped


@pytest.mark.parametrize("way", WAYS)
def test_evaluation_in_a_pause_that_changes_a_part_and_does_not_put_it_back_is_seen(
    way: str,
) -> None:
    state = made()
    with suppress(Interrupted), entered(state):
        while state.step < STEP + 2:
            plain_step(state, lambda _: None)
        with state.pause("evaluation"):
            write_beyond_the_beginning(state, way)
            raise Interrupted
    core_of(state).rollback()
    assert not core_of(state).is_clean


def test_what_cannot_be_hashed_where_it_stands_is_summed_up() -> None:
    """A parameter with gaps in its memory, as one on a GPU."""
    wide = torch.randn(8, 8)
    parameter = torch.nn.Parameter(wide[:, :4])
    monitor = ParameterMonitor()
    monitor.bind([], [parameter])
    monitor.rebaseline(is_hashed=True)
    assert not monitor.has_changed(is_close=True)
    parameter.data[5, 3] += 1
    assert monitor.has_changed(is_close=True)
    monitor.rebaseline()
    assert not monitor.has_changed(is_close=True), "the present values count now"


def negate(parameter: torch.Tensor) -> None:
    parameter.neg_()


def halve(parameter: torch.Tensor) -> None:
    parameter.mul_(0.5)


def flip(parameter: torch.Tensor) -> None:
    parameter.copy_(parameter.flip(0))


def exchange_rows(parameter: torch.Tensor) -> None:
    parameter[2:] = parameter[2:].roll(1, 0).clone()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", [negate, halve, flip, exchange_rows])
def test_write_in_which_a_sum_of_words_cancels_is_seen(
    write: Callable[[torch.Tensor], None], way: str
) -> None:
    """In a parameter of float64 with gaps in its memory, of which a sum is taken."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(65, 80, dtype=torch.float64)[:, :64])
    monitor = ParameterMonitor()
    monitor.bind([], [parameter])
    for is_expected in (True, False):
        monitor.rebaseline(is_hashed=True, is_expected=is_expected)
        assert not monitor.has_changed(is_close=True)
        write(WAYS[way](parameter)[1:])  # The beginning stays.
        assert monitor.has_changed(is_close=True)


def test_write_that_torch_counted_after_a_sum_was_taken_is_a_change() -> None:
    """A sum is no proof that what was written was there; a hash of all bytes is."""
    for parameter, is_seen in ((torch.randn(8, 8)[:, :4], True), (torch.randn(8, 4), False)):
        monitor = ParameterMonitor()
        monitor.bind([], [parameter])
        monitor.rebaseline(is_hashed=True)
        parameter.copy_(parameter.clone())
        assert monitor.has_changed() == is_seen


def test_script_that_wrote_once_is_not_read_at_each_commit_for_ever() -> None:
    """Nor one that loaded into its optimizer; what it writes later is seen once more."""
    state = made()
    reads = []
    with entered(state):
        while state.step < STEP + QUIET_COMMITS + COMMITS_APART:
            if state.step == STEP:
                write_beyond_the_beginning(state, "counted by torch")
            plain_step(state, lambda _: None)
            reads.append(core_of(state).guard.monitor.is_hashed)
    assert all(reads[STEP : STEP + QUIET_COMMITS - 1])
    assert sum(reads[-COMMITS_APART:]) == 1
    assert core_of(state).guard.monitor.is_usual, "a pause begins with a copy as before"


class ReadingClock:
    """A clock that goes on by itself only while a parameter is read."""

    def __init__(self, hash_s: float) -> None:
        self.now_s = 0.0
        self._hash_s = hash_s

    def __call__(self) -> float:
        self.now_s += self._hash_s
        return self.now_s


@pytest.mark.parametrize("is_expected", [False, True])
def test_look_that_would_take_much_of_the_time_since_the_last_waits(
    is_expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a commit, and as a pause begins; then only the beginnings are looked at."""
    monkeypatch.setattr(parameter_change, "LIGHT_BYTES", 0)
    clock = ReadingClock(1.0)
    monitor = ParameterMonitor(clock)
    monitor.bind([], [torch.nn.Parameter(torch.ones(8, 8))])
    monitor.rebaseline(is_probe=True)
    assert monitor.is_hashed
    for _ in range(3):
        monitor.rebaseline(is_probe=True, is_expected=is_expected)
        assert not monitor.is_hashed
    clock.now_s += 1 / SHARE
    monitor.rebaseline(is_probe=is_expected, is_expected=is_expected)
    assert monitor.is_hashed, "it was due"
    clock.now_s += 1 / SHARE
    monitor.rebaseline()
    assert not monitor.is_hashed, "once"


def test_script_that_writes_to_nothing_is_read_in_few_of_its_steps() -> None:
    """Reading all parameters at each commit would be felt."""
    assert sum(map(is_probed, range(1000))) <= 1000 / COMMITS_APART + FIRST_COMMITS
    for period in (1, 2, 5, 10, 25, 50, 100):
        for phase in range(period):
            assert any(map(is_probed, range(phase, COMMITS_APART * period, period)))

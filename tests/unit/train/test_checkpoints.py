"""What a run does about checkpoints as it ends."""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from elasticd.train.checkpoints import Checkpoints, NothingSaved
from elasticd.train.restore.restore_result import RestoreResult
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.state import State, core_of
from elasticd.train.sync.newest_state import SourceDecision
from elasticd.train.world import World
from elasticd_agent.pool.worker.raised import describe
from tests.unit.train.state.state_case import entered, model, plain_step, world


class FakeSaving:
    """Says what was asked of it."""

    def __init__(self, saved_step: int) -> None:
        self.saved_step = saved_step
        self.done: list[str] = []

    def has_saved(self, step: int) -> bool:
        return step <= self.saved_step

    def say(self, sentence: str) -> None:
        self.done.append(sentence)

    def wait(self, timeout_s: float, is_wanted: Callable[[], bool]) -> bool:
        self.done.append("waited")
        return True

    def finish(self, is_wanted: Callable[[], bool]) -> None:
        self.done.append("saved")


def half_a_commit(state: State) -> None:
    state.model(torch.randn(4, 4)).square().mean().backward()
    state.optimizer.step()


def best_of_all(state: State) -> None:
    for each in state.model.parameters():
        each.data.zero_()


def evaluation(state: State) -> None:
    """With other parameters, which are put back."""
    for each in state.model.parameters():
        before = each.detach().clone()
        each.detach().zero_()
        each.detach().copy_(before)


@pytest.mark.parametrize(
    ("last", "saved_step", "is_saved"),
    [
        (half_a_commit, 2, False),
        (best_of_all, 2, False),
        (half_a_commit, 3, True),
        (evaluation, 2, True),
        (lambda state: None, 2, True),
    ],
    ids=["a step", "other parameters", "all was saved before", "an evaluation", "nothing"],
)
def test_what_no_commit_counted_is_in_no_checkpoint(
    last: Callable[[State], None], saved_step: int, is_saved: bool
) -> None:
    """It would be called the state of the last commit, whose samples are done again with it."""
    net = model()
    state = State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    session: Any = SimpleNamespace(pause=lambda why: None, is_stale=lambda generation: False)
    persistence = Checkpoints(WorkerSettings.read({}), core_of(state), session)
    saving: Any = FakeSaving(saved_step)
    persistence._saving = saving
    with entered(state):
        for _ in range(3):
            plain_step(state, lambda _: None)
        last(state)
        persistence.finish(1)
    if is_saved:
        assert saving.done == ["saved"]
    else:
        sentence, waited = saving.done
        assert "after the last commit (step 3)" in sentence and waited == "waited"


def test_loss_before_the_first_snapshot_is_no_error_of_a_line_of_the_script() -> None:
    """All ranks raise it alike. One with a line would end the job: a restart would not help."""
    try:
        raise NothingSaved("No rank has a state.")
    except NothingSaved as exc:
        told = describe("w", exc)
    assert (told.where, told.traceback, told.ends_job) == ("", "", False)
    assert told.exception == "NothingSaved: No rank has a state."


@pytest.mark.parametrize("is_fresh", [True, False], ids=["restored", "from a rank"])
def test_restore_that_was_interrupted_leaves_nothing_that_was_built_for_its_world(
    is_fresh: bool,
) -> None:
    """Another fault may come while a state is restored: the next world's objects are built then."""
    built: list[int] = []

    def build(of: World) -> torch.nn.Module:
        built.append(of.generation)
        return model()

    state: State = State(
        model=build, optimizer=lambda _: torch.optim.SGD(state.model.parameters(), lr=0.1)
    )
    with entered(state):
        plain_step(state, lambda _: None)
    source = core_of(state).tree()
    session: Any = SimpleNamespace(pause=lambda why: None, is_stale=lambda generation: False)
    persistence = Checkpoints(WorkerSettings.read({}), core_of(state), session)
    saving: Any = SimpleNamespace(run=0)
    persistence._saving = saving
    fresh = SourceDecision(position=(1, 0), sources=(), targets=(0,), is_fresh=True)
    persistence.build(fresh, world(generation=2))
    assert built == [1, 2]
    persistence.build(dataclasses.replace(fresh, is_fresh=is_fresh), world(generation=3))
    core_of(state).load(source, (1, 0))
    core_of(state)._build(world(generation=3))
    assert built == [1, 2, 3] and state.model is not None


def test_what_was_built_before_nothing_was_found_is_built_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was built of this rank's own state, and the training begins with that of rank 0."""
    built: list[float] = []

    def build(_: World) -> torch.nn.Module:
        built.append(float(state.start[0]))
        return model()

    state: State = State(
        model=build,
        optimizer=lambda _: torch.optim.SGD(state.model.parameters(), lr=0.1),
        start=torch.ones(1),
    )
    rank_0 = State(model=build, optimizer=lambda _: None, start=torch.zeros(1))
    session: Any = SimpleNamespace(pause=lambda why: None, is_stale=lambda generation: False)
    persistence = Checkpoints(WorkerSettings.read({}), core_of(state), session)
    saving: Any = SimpleNamespace(
        run=0, present_client=lambda: None, restored=lambda step, place, *, generation: None
    )
    persistence._saving = saving
    fresh = SourceDecision(position=(0, 0), sources=(0,), targets=(1,), is_fresh=True)
    persistence.build(fresh, world())
    nothing = RestoreResult(run=1, snapshot=None)
    monkeypatch.setattr("elasticd.train.restore.restore.restore", lambda *_: nothing)
    group: Any = SimpleNamespace(generation=1)
    assert persistence.restore(group).run == 1
    core_of(state).load(core_of(rank_0).tree(), (0, 0))
    with entered(state):
        assert built == [1.0, 0.0]

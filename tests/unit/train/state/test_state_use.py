"""What a script may do with its `State`, and what `State` refuses."""

import threading
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.data.loader import Loader
from elasticd.train.interrupt import Interrupted
from elasticd.train.optimizer import step_guard
from elasticd.train.state import state as state_module
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import (
    Case,
    FakeWatch,
    Killer,
    entered,
    facts,
    model,
    plain,
    plain_step,
    same,
    train,
    world,
)


def test_learning_rate_of_the_last_commit_comes_back() -> None:
    """A scheduler writes into the optimizer's groups, not into itself."""
    state, _ = plain(torch.optim.SGD, lr=1.0)
    with entered(state):
        plain_step(state, lambda _: None)
        rate = state.optimizer.param_groups[0]["lr"]
        state.scheduler.step()
        state.optimizer.param_groups[0]["extra"] = 1
    with entered(state):
        assert state.optimizer.param_groups[0]["lr"] == rate == 0.5
        assert "extra" not in state.optimizer.param_groups[0]
        assert state.scheduler.get_last_lr() == [0.5]


def test_gradients_of_the_interrupted_step_are_gone() -> None:
    """A script that accumulates would add to them."""
    net = model()
    with entered(State(model=net)) as watch:
        net(torch.ones(2, 4)).sum().backward()
        watch.is_over = True
    state = State(model=net)
    with entered(state):
        assert all(parameter.grad is None for parameter in net.parameters())


def test_values_are_read_and_assigned_as_attributes() -> None:
    """They count from the next commit."""
    queue = torch.zeros(3)
    state = State(best=None, history=[], queue=queue)
    with entered(state):
        state.best = 0.25
        state.history.append({"loss": 1.0})
        queue[0] = 1
        state.commit()
        state.best = 7
        state.history.append("lost")
        state.queue[1] = 1
    with entered(state):
        assert state.best == 0.25
        assert state.history == [{"loss": 1.0}]
        assert state.queue is queue
        assert queue.tolist() == [1, 0, 0]


def test_optimizer_that_the_state_does_not_have_is_refused_at_its_first_step() -> None:
    """It would be lost, silently."""
    net, other = model(), torch.nn.Linear(1, 1)
    state = State(model=net)
    optimizer = torch.optim.RMSprop(other.parameters())
    before = other.weight.detach().clone()
    other(torch.ones(1, 1)).sum().backward()
    with entered(state), pytest.raises(CallError, match=r"RMSprop.*give it to State"):
        optimizer.step()
    assert torch.equal(other.weight, before)
    optimizer.step()
    assert not torch.equal(other.weight, before)


def test_optimizer_inside_a_wrapper_that_saves_it_is_known() -> None:
    """The wrapper's state_dict covers it; a scheduler's does not cover its optimizer."""

    class Wrapper:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer
            self.slow = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]

        def step(self) -> None:
            self.optimizer.step()
            for slow in self.slow:
                slow.mul_(0.5)

        def zero_grad(self) -> None:
            self.optimizer.zero_grad()

        def state_dict(self) -> dict[str, Any]:
            return {"fast": self.optimizer.state_dict(), "slow": self.slow}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.optimizer.load_state_dict(state["fast"])
            self.slow = state["slow"]

    def make() -> Case:
        net = model()
        return State(model=net, optimizer=Wrapper(torch.optim.Adam(net.parameters()))), plain_step

    undisturbed, disturbed = make(), make()
    train(undisturbed)
    assert train(disturbed, at=Killer(disturbed[0], "step", 1)) == 1
    assert same(facts(disturbed[0]), facts(undisturbed[0]))
    inner = torch.optim.SGD(model().parameters(), lr=0.1)
    outer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    vars(outer)["base"] = inner
    with entered(State(optimizer=outer)), pytest.raises(CallError, match="give it to State"):
        inner.step()
    outer.state = inner.state
    with entered(State(optimizer=outer)):
        inner.step()
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model().parameters(), lr=1), 1)
    with entered(State(scheduler=scheduler)), pytest.raises(CallError, match="give it to State"):
        scheduler.optimizer.step()


def test_epochs_end_with_a_commit_that_is_no_step() -> None:
    """What was not committed of a pass is done again; the loader starts each pass at its begin."""
    state = State(data=Loader(list(range(8)), 4, shuffle=False), seen=())
    passes = []
    for strike in ("in", "after", ""):
        try:
            with entered(state) as watch:
                for epoch in state.epochs(2):
                    passes.append(epoch)
                    for batch in state.data:
                        state.seen += (sum(batch.tolist()),)
                        if strike == "in" and state.step == 1:
                            raise Interrupted
                        state.commit()
                    if strike == "after" and epoch == 1:
                        raise Interrupted
        except Interrupted:
            core_of(state).rollback()
    assert core_of(state).position == (4, 2)
    assert state.seen == (6, 22, 6, 22)
    assert passes == [0, 0, 1, 1]
    assert watch.committed_at == [(4, 2)]
    assert core_of(state).data_totals == (16, 0, 0)
    assert state.summary() == "4 steps, 2 epochs, 16 samples (0 repeated, 0 skipped)."


@pytest.mark.parametrize("steps", [200.0, "200", None, -1])
def test_last_step_that_is_no_number_of_steps_is_refused(steps: Any) -> None:
    """At once, in the words of the script, and not by a heartbeat that cannot be packed."""
    state = State()
    with (
        entered(state),
        pytest.raises(CallError, match="give the number of the script's last step"),
    ):
        state.epochs(2, steps=steps)


def test_pending_change_leaves_at_the_end_of_a_commit_an_epoch_and_a_pause() -> None:
    """And before an optimizer touches anything."""
    state, _ = plain(torch.optim.SGD, lr=0.1)
    with entered(state) as watch:
        watch.is_over = True
        with pytest.raises(Interrupted):
            plain_step(state, lambda _: None)
        assert core_of(state).position == (0, 0)
        assert core_of(state).is_clean
    with entered(state) as watch:
        with pytest.raises(Interrupted), state.pause("evaluation"):
            watch.is_over = True
        assert watch.paused == ["evaluation", None]
        watch.is_over = False
        passes = state.epochs(1)
        next(passes)
        watch.is_over = True
        with pytest.raises(Interrupted):
            next(passes)
        assert state.epoch == 0, "the collectives of an evaluation may be what broke"
        watch.is_over = False


def test_scalars_are_numbers_or_tensors_of_one() -> None:
    """A tensor of the host is read at once, so that nothing holds its graph."""
    state = State()
    with entered(state):
        loss = torch.tensor([2.0], requires_grad=True)
        state.commit(loss=loss * 2, rate=1)
        assert core_of(state).scalars() == {"loss": 4.0, "rate": 1.0}
        assert type(core_of(state).commit_scalars._given["loss"]) is float
        with pytest.raises(CallError, match=r"shape \[2\]"):
            state.commit(loss=torch.zeros(2))
        with pytest.raises(CallError, match="got a list"):
            state.commit(loss=[1.0])  # type: ignore[arg-type]
        assert state.step == 1


# --- what it refuses ----------------------------------------------------------------------------


class OnlySaves:
    def state_dict(self) -> dict[str, int]:
        return {}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"step": 1}, "cannot hold an entry called 'step'"),
        ({"_x": 1}, "underscore"),
        ({"thing": OnlySaves()}, "has state_dict but no load_state_dict"),
        ({"thing": object()}, "is a object, which cannot be copied"),
        ({"model": torch.nn.Linear}, "is the class Linear"),
        ({"values": [object()]}, r"values=...\)\[0\] is a builtins.object"),
        ({"model": torch.nn.DataParallel(torch.nn.Linear(1, 1))}, "wrap it inside train"),
    ],
)
def test_entries_that_cannot_survive_are_refused(entries: dict[str, Any], message: str) -> None:
    """With what to do instead."""
    with pytest.raises(CallError, match=message):
        State(**entries)


def test_what_cannot_travel_is_told_at_the_start() -> None:
    """Not in the first failure, hours later."""

    class Odd:
        def state_dict(self) -> dict[str, object]:
            return {"handle": object()}

        def load_state_dict(self, state: object) -> None:
            pass

    with pytest.raises(CallError, match=r"state\.odd\.handle"), entered(State(odd=Odd())):
        pass


def test_names_that_were_not_declared_are_refused() -> None:
    """A value that only one rank has would be lost with it."""
    state = State(model=model(), best=0)
    with pytest.raises(CallError, match="not declared"):
        state.worst = 1
    with pytest.raises(CallError, match="module and cannot be replaced"):
        state.model = model()
    with pytest.raises(CallError, match="elasticd's own"):
        state.step = 3  # type: ignore[misc]
    with pytest.raises(CallError, match="not a plain value"):
        state.best = object()
    with pytest.raises(AttributeError, match="no worst"):
        _ = state.worst


def test_commit_wants_to_be_in_train_and_in_its_thread() -> None:
    """Anywhere else it would count what is not whole."""
    state = State()
    with pytest.raises(CallError, match=r"outside of elasticd\.run"):
        state.commit()
    with pytest.raises(CallError, match=r"outside of elasticd\.run"):
        state.epochs(2)
    errors: list[BaseException] = []

    def other() -> None:
        try:
            state.commit()
        except CallError as exc:
            errors.append(exc)

    with entered(state):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another thread" in str(errors[0])


def test_rank_that_a_group_of_the_scripts_own_interrupts_after_its_step_is_known_as_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody counts the collectives of such a group; after the first time a copy is made."""
    monkeypatch.setattr(step_guard, "COPY_LIMIT_BYTES", 0)
    state, _ = plain(torch.optim.Adam, lr=0.1)
    before = facts(state)

    def steps(watch: FakeWatch) -> None:
        nonlocal before
        for is_last in (False, False, False, True):
            before = facts(state)
            watch.collectives += 1
            state.model(torch.ones(2, 4)).square().mean().backward()
            state.optimizer.step()
            if is_last:
                raise Interrupted  # In a sum over a group of the script's own.
            state.commit()

    for is_known in (False, True):
        with entered(state) as watch, pytest.raises(Interrupted):
            steps(watch)
        core_of(state).rollback()
        assert core_of(state).is_clean is is_known
        assert core_of(state).has_stepped is not is_known
        core_of(state).guard.reset()
    assert same(facts(state), before)


def test_interrupt_is_no_exception() -> None:
    """`except Exception` around a step does not swallow it."""
    assert not issubclass(Interrupted, Exception)
    assert state_module.State is State
    assert world().size == 1


def test_list_that_train_makes_two_values_is_refused_at_the_next_commit() -> None:
    """What is appended to the one would be missing in the other after a failure."""
    state: Any = State(now=None, before=None)
    with entered(state):
        for _ in range(3):
            state.commit()
        state.now = [1]
        state.before = state.now
        state.now = []  # Two again before the commit.
        for _ in range(2):
            state.commit()
        state.before = state.now
        with pytest.raises(CallError, match=r"state\.before and state\.now are one list"):
            state.commit()


def test_list_twice_within_a_value_is_refused_where_a_commit_looks_at_everything() -> None:
    inner = [1]
    state: Any = State(now=None)
    with entered(state):
        state.now = {"one": inner, "other": (inner,)}
        with pytest.raises(CallError, match=r"state\.now\.other\[0\] and .* are one list"):
            state.commit()

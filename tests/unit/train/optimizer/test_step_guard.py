"""Bad gradients are seen before the damage; the hooks see each step once."""

from typing import Any

import pytest
import torch

from elasticd.train.interrupt import Interrupted
from elasticd.train.optimizer import sharded_optimizer
from elasticd.train.optimizer.nonfinite_gradient import OnNan, has_bad
from elasticd.train.optimizer.optimizer_undo import OptimizerUndo
from elasticd.train.optimizer.step_guard import UNCOMMITTED_STEPS
from elasticd.train.state.state import State, core_of
from tests.unit.train.state.state_case import (
    FakeWatch,
    Killer,
    batch,
    closure,
    entered,
    facts,
    model,
    plain_step,
    rivals,
    same,
)


def ready(on_nan: str, make: Any = torch.optim.Adam, **options: Any) -> State:
    net = model()
    state = State(model=net, optimizer=make(net.parameters(), **options))
    core_of(state).on_nan = on_nan
    return state


def bad_step(state: State) -> None:
    state.optimizer.zero_grad()
    loss = state.model(batch()).square().mean()
    (loss * float("nan")).backward()
    state.optimizer.step()
    state.commit(loss=loss)


def test_stop_names_parameters_and_leaves_them_alone() -> None:
    """A loss that is not a number makes the gradients so."""
    state = ready("stop")
    with entered(state):
        plain_step(state, lambda _: None)
        before = facts(state)
        with pytest.raises(FloatingPointError, match=r"model\.0\.weight, .*and 3 more \(6 of 6\)"):
            bad_step(state)
        assert not core_of(state).is_dirty
    core_of(state).rollback()
    assert same(facts(state), before)


def test_skip_does_nothing_in_that_step_and_counts_it() -> None:
    """Neither momentum nor weight decay moves the parameters."""
    state = ready("skip", torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1)
    with entered(state):
        plain_step(state, lambda _: None)
        before = [parameter.clone() for parameter in state.model.parameters()]
        bad_step(state)
        after = list(state.model.parameters())
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert state.step == 2
        plain_step(state, lambda _: None)
        assert not torch.equal(before[0], after[0])
    assert "1 optimizer step left out" in state.summary()


def test_ignore_lets_the_step_happen() -> None:
    """The default: nothing is looked at."""
    state = ready("ignore")
    with entered(state):
        bad_step(state)
    assert next(state.model.parameters()).isnan().all()


def test_findings_of_a_scaler_are_left_to_a_fused_optimizer() -> None:
    """An overflow is how a GradScaler finds its scale; it is no failure."""
    state = ready("stop", fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with entered(state):
        before = state.model[0].weight.clone()
        scaler.scale(state.model(batch()).square().mean()).backward()
        state.model[0].weight.grad.fill_(float("inf"))
        scaler.step(state.optimizer)
        scaler.update()
        state.commit()
    assert torch.equal(state.model[0].weight, before)
    assert scaler.get_scale() == 1.0


def test_interrupted_fused_step_does_not_scale_the_next_one_twice() -> None:
    """The scaler leaves its scale on the optimizer when the step raises."""
    state = ready("ignore", fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with entered(state) as watch:
        scaler.scale(state.model(batch()).square().mean()).backward()
        watch.is_over = True
        with pytest.raises(Interrupted):
            scaler.step(state.optimizer)
    assert hasattr(state.optimizer, "grad_scale")
    core_of(state).rollback()
    assert not hasattr(state.optimizer, "grad_scale")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_greatest_finite_gradients_are_not_bad(dtype: torch.dtype) -> None:
    """A sum of squares would overflow."""
    parameter = torch.nn.Parameter(torch.zeros(8, dtype=dtype))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    assert not has_bad(optimizer)
    parameter.grad = torch.full((8,), torch.finfo(dtype).max, dtype=dtype)
    assert not has_bad(optimizer)
    for value in (float("inf"), -float("inf"), float("nan")):
        parameter.grad[3] = value
        assert has_bad(optimizer)


def test_bad_gradients_in_a_closure_stop_the_step() -> None:
    """They are made within the step, so it is undone."""
    state, step = closure()
    core_of(state).on_nan = "stop"
    with entered(state):
        step(state, lambda _: None)
        before = facts(state)

        def bad(_: str) -> None:
            state.model.weight.grad.fill_(float("nan"))

        with pytest.raises(FloatingPointError, match=r"model\.weight"):
            step(state, bad)
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)


def test_step_waits_once_for_each_round_of_collectives() -> None:
    """One optimizer: once, before its step; the commit has nothing left to wait for."""
    state = ready("ignore")
    with entered(state) as watch:
        for step in range(3):
            watch.collectives += 1
            plain_step(state, lambda _: None)
            assert watch.synchronized == step + 1
        state.commit()
        assert watch.synchronized == 4, "no optimizer step, as when a scaler skips it"
        watch.collectives += 1
        plain_step(state, lambda name: setattr(watch, "collectives", 9) if name == "step" else None)
        assert watch.synchronized == 6, "a collective after the step is waited for by the commit"


@pytest.mark.parametrize(
    ("is_on_gpu", "groups", "waits"), [(False, 2, 1), (True, 1, 2), (True, 2, 3)]
)
def test_sums_of_other_groups_are_waited_for_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, is_on_gpu: bool, groups: int, waits: int
) -> None:
    """Only collectives of the default group are counted, and on a GPU a call returns before its
    result is there: each step waits and, if there are other groups, the commit does."""
    net = model()
    matrices, others = (
        [p for p in net.parameters() if (p.ndim == 2) is is_2d] for is_2d in (True, False)
    )
    first, second = torch.optim.SGD(matrices, lr=0.1), torch.optim.SGD(others, lr=0.1)
    state = State(model=net, first=first, second=second)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(sharded_optimizer, "has_other_groups", lambda: groups > 1)
    with entered(state) as watch:
        core_of(state).guard._is_on_gpu = is_on_gpu
        split(state)
        state.commit()
        assert watch.synchronized == waits


def test_step_whose_gradients_are_not_whole_changes_nothing() -> None:
    """A peer is gone: its share is in no sum, so the generation is over before the step."""
    state = ready("ignore")
    with entered(state) as watch:
        plain_step(state, lambda _: None)
        before = facts(state)
        state.model[3].bias.grad = torch.ones(1)
        watch.is_over = True
        with pytest.raises(Interrupted):
            state.optimizer.step()
        assert not core_of(state).is_dirty
        assert same(facts(state), before)


def test_without_a_count_of_collectives_each_step_and_a_commit_without_one_wait() -> None:
    """A world of one does not count."""

    class Uncounted(FakeWatch):
        def sequence(self) -> None:
            return None

    state = ready("ignore")
    with entered(state, Uncounted()) as watch:
        plain_step(state, lambda _: None)
        assert watch.synchronized == 1
        state.commit()
        assert watch.synchronized == 2


def test_two_optimizers_can_be_interrupted_between_their_steps() -> None:
    """The second one's gradients are summed up after the first has made its step."""
    state, step = rivals()
    with entered(state) as watch:

        def reach(name: str) -> None:
            watch.collectives += name == "second backward"

        for _ in range(4):
            step(state, reach)
        assert any(undo._copies for undo in core_of(state).guard._undo.values())
        before = facts(state)
        with pytest.raises(Interrupted):
            step(state, Killer(state, "between", 4))
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)


def split(state: State) -> None:
    """Some matrices by one optimizer, the rest by another, back to back."""
    state.model(batch()).square().mean().backward()
    for optimizer in (state.first, state.second):
        optimizer.step()
        optimizer.zero_grad()


def test_two_optimizers_back_to_back_cost_no_copy_once_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing can interrupt a rank between them; until it is known, there are copies."""
    taken: list[bool] = []
    take = OptimizerUndo.take

    def counted(undo: OptimizerUndo, *, is_required: bool) -> None:
        taken.append(is_required)
        take(undo, is_required=is_required)

    monkeypatch.setattr(OptimizerUndo, "take", counted)
    net = model()
    parameters = list(net.parameters())
    state = State(
        model=net,
        first=torch.optim.Adam(parameters[:2]),
        second=torch.optim.SGD(parameters[2:], lr=0.1),
    )
    with entered(state) as watch:
        taken.clear()
        # As where the state is too large for a copy at the start.
        core_of(state).guard._is_copied = False
        for _ in range(5):
            watch.collectives += 1
            split(state)
            state.commit()
        assert taken == [True] * 4
        assert all(not undo._copies for undo in core_of(state).guard._undo.values())
        watch.collectives += 1
        state.first.step()
        watch.collectives += 1
        state.second.step()
        state.commit()
        taken.clear()
        split(state)
        state.commit()
        assert taken == [True] * 2, "it was seen that they are apart"


def test_optimizers_that_take_turns_are_copied_until_both_were_seen_in_one_commit() -> None:
    """What comes between them is not known before."""
    state, step = rivals()
    with entered(state) as watch:
        for turn in range(6):
            watch.collectives += 1
            (state.first, state.second)[turn % 2].step()
            state.commit()
        before = facts(state)
        with pytest.raises(Interrupted):
            step(state, Killer(state, "between", 6))
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)


def test_rank_that_was_once_interrupted_between_step_and_commit_is_prepared_for_it() -> None:
    """Even if nobody counted a collective there."""
    state = ready("ignore")
    for is_clean in (False, True):
        with entered(state):
            for _ in range(3):
                plain_step(state, lambda _: None)
            with pytest.raises(Interrupted):
                plain_step(state, Killer(state, "step", state.step))
        core_of(state).rollback()
        assert core_of(state).is_clean == is_clean


def test_subclass_whose_step_calls_the_class_above_is_one_step() -> None:
    """Torch's hooks are called for both."""

    class Sub(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            result = super().step(closure)
            assert not core_of(state).guard._begun[self]
            return result

    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    state = ready("ignore", Sub, lr=0.1)
    with entered(state) as watch:
        plain_step(state, lambda _: None)
        assert watch.synchronized == 1


def test_undo_restores_lazily_made_state_to_nothing() -> None:
    """Adam makes its averages in the first step."""
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter])
    undo = OptimizerUndo(optimizer)
    undo.take(is_required=True)
    for _ in range(2):
        parameter.grad = torch.ones(3)
        optimizer.step()
        undo.put_back()
        assert torch.equal(parameter, torch.ones(3))
        assert not optimizer.state


def test_undo_keeps_the_tensors_that_others_hold() -> None:
    """A captured graph writes to their addresses."""
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(3)
    optimizer.step()
    undo = OptimizerUndo(optimizer)
    undo.take(is_required=True)
    average = optimizer.state[parameter]["exp_avg"]
    before = average.clone()
    optimizer.step()
    undo.put_back()
    assert optimizer.state[parameter]["exp_avg"] is average
    assert torch.equal(average, before)


def test_script_that_never_commits_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It would train the same steps again after every failure, and never know."""
    state = ready("ignore")
    with entered(state):
        for _ in range(3 * UNCOMMITTED_STEPS):
            state.model(batch()).square().mean().backward()
            state.optimizer.step()
    said = capsys.readouterr().err
    assert said.count("no commit") == 1
    assert f"elasticd: {UNCOMMITTED_STEPS} optimizer steps" in said


def test_script_that_commits_after_several_steps_is_told_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A step may be made of many."""
    state = ready("ignore")
    with entered(state):
        for _ in range(5):
            for _ in range(UNCOMMITTED_STEPS - 1):
                state.model(batch()).square().mean().backward()
                state.optimizer.step()
            state.commit()
    assert not capsys.readouterr().err


# --- meeting ------------------------------------------------------------------------------------


class Meetings:
    """Counts them, as a collective of the default group; the last one may break."""

    def __init__(self, watch: FakeWatch) -> None:
        self.watch, self.count, self.is_broken = watch, 0, False

    def __call__(self) -> None:
        if self.is_broken:
            raise RuntimeError("Connection closed by peer")
        self.watch.collectives += 1
        self.count += 1


def armed(state: State, watch: FakeWatch) -> Meetings:
    """Meet, as ranks of a sharded state with replicas do."""
    meetings = Meetings(watch)
    core_of(state).guard.arm(watch, OnNan.IGNORE, meetings)
    return meetings


def test_ranks_meet_once_for_a_step_before_anything_is_touched() -> None:
    """Whoever comes through takes the step and commits it, whoever does not has touched nothing."""
    state = ready("ignore")
    with entered(state) as watch:
        meetings = armed(state, watch)
        for _ in range(3):
            plain_step(state, lambda _: None)
        assert meetings.count == 3
        before, waits = facts(state), watch.synchronized
        meetings.is_broken = True
        with pytest.raises(RuntimeError, match="closed by peer"):
            plain_step(state, lambda _: None)
        assert not core_of(state).is_dirty and watch.synchronized == waits + 1
    core_of(state).rollback()
    assert same(facts(state), before)


def test_step_that_all_have_met_for_is_committed_whatever_comes() -> None:
    """Others take it too, so a rank that gave up now would be behind them alone."""
    state = ready("ignore")
    with entered(state) as watch:
        armed(state, watch)

        def end(at: str) -> None:
            watch.is_over |= at == "step"

        with pytest.raises(Interrupted):
            plain_step(state, end)
        assert state.step == 1 and not core_of(state).is_dirty, "left after the commit"


def test_ranks_meet_again_where_a_commit_is_more_than_one_step() -> None:
    """Two optimizers, collectives in between, or no step at all, as at the end of an epoch."""
    state = ready("ignore")
    with entered(state) as watch:
        meetings = armed(state, watch)
        state.commit()
        assert meetings.count == 1
        for pause in (0, 1):
            state.optimizer.step()
            watch.collectives += pause
            state.commit()
        assert meetings.count == 1 + 1 + 2
        state.optimizer.step()
        state.optimizer.step()
        state.commit()
        assert meetings.count == 4 + 2

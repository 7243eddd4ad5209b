"""A step that is queued behind broken collectives changes nothing, and then does not count."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.device.abort_flag import AbortFlag, FlagReading
from elasticd.train.device.device import CPU
from elasticd.train.group_broken import GroupBroken
from elasticd.train.interrupt import Interrupted
from elasticd.train.introspection import collective_wait
from elasticd.train.introspection.collective_wait import StepWait
from elasticd.train.optimizer.parameter_change import FIRST_COMMITS
from elasticd.train.process_group.queued_steps import QueuedSteps
from elasticd.train.session import agent_session as session_module
from elasticd.train.session.step_session import DeviceMark
from elasticd.train.state.state import State, core_of
from tests.unit.train.session.session_bench import Bench, bench
from tests.unit.train.state.state_case import FakeWatch, batch, entered, facts, model, same

__all__ = ["bench"]

KINDS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam": lambda each: torch.optim.Adam(each, fused=True, amsgrad=True),
    "AdamW": lambda each: torch.optim.AdamW(each, fused=True, weight_decay=0.1),
    "SGD": lambda each: torch.optim.SGD(each, lr=0.1, fused=True),
    "momentum": lambda each: torch.optim.SGD(each, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "Adagrad": lambda each: torch.optim.Adagrad(each, fused=True),
}

KNOWN = FIRST_COMMITS + 1
"""So many commits are past the first ones, whose steps wait."""


def ready(kind: str = "AdamW") -> State:
    net = model()
    return State(net=net, optimizer=KINDS[kind](net.parameters()))


@contextmanager
def queued(state: State, watch: Any = None) -> Iterator[AbortFlag]:
    """Be in `train` with a flag, as `run` does it, after commits that showed all habits."""
    flag = AbortFlag(CPU)
    with entered(state, watch) as using:
        queue(state, flag, using)
        for _ in range(KNOWN):
            step(state)
            state.commit()
        yield flag


def queue(state: State, flag: AbortFlag, watch: Any) -> None:
    guard = core_of(state).guard
    every = core_of(state).of_kind(object)
    guard.queued = QueuedSteps.of(flag, guard.optimizers, every, watch, "ignore")


def step(state: State) -> None:
    state.optimizer.zero_grad()
    state.net(batch()).square().mean().backward()
    state.optimizer.step()


def owned(state: State) -> list[torch.Tensor]:
    """Parameters, and all that the optimizer keeps of them."""
    kept = [each for entry in state.optimizer.state.values() for each in entry.values()]
    tensors = [each for each in kept if isinstance(each, torch.Tensor)]
    return [each.detach().clone() for each in (*state.net.parameters(), *tensors)]


def alike(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.parametrize("kind", KINDS)
def test_step_behind_an_abort_changes_nothing_and_does_not_count(kind: str) -> None:
    """Parameters, moments and counts of steps are those of the commit before, bit for bit."""
    state = ready(kind)
    with queued(state) as flag:
        before, mine = facts(state), owned(state)
        flag.set()
        step(state)
        assert alike(owned(state), mine), "torch's own kernels leave it out"
        with pytest.raises(GroupBroken, match="left out"):
            state.commit()
        assert state.step == KNOWN and core_of(state).is_dirty
    core_of(state).rollback()
    assert core_of(state).is_clean
    assert same(facts(state), before)


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_as_if_there_had_been_no_abort(kind: str) -> None:
    """The step is done again in the next generation."""
    broken, whole = ready(kind), ready(kind)
    whole.net.load_state_dict(broken.net.state_dict())
    with queued(broken) as flag:
        flag.set()
        step(broken)
    core_of(broken).rollback()
    with queued(broken):
        pass
    with queued(whole):
        pass
    with entered(whole):
        for _ in range(KNOWN):
            step(whole)
            whole.commit()
    assert broken.step == whole.step
    pairs = zip(broken.net.parameters(), whole.net.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_step_that_was_made_counts_though_an_abort_follows() -> None:
    """The device looked at the flag when all sums were there."""
    state = ready()
    with queued(state) as flag:
        before = owned(state)
        step(state)
        flag.set()
        state.commit()
        assert state.step == KNOWN + 1 and not alike(owned(state), before)


def test_step_that_was_made_and_not_committed_has_ended() -> None:
    """Other ranks may go on from it if nobody is clean, as without a flag."""
    state = ready()
    with queued(state) as flag:
        step(state)
        flag.set()
    core_of(state).rollback()
    assert not core_of(state).is_clean and core_of(state).has_stepped


def test_second_step_of_a_commit_is_not_made_without_the_first() -> None:
    """Both are left out."""
    state = ready()
    with queued(state) as flag:
        before = facts(state)
        flag.set()
        step(state)
        with pytest.raises(GroupBroken, match="left out"):
            step(state)
    core_of(state).rollback()
    assert core_of(state).is_clean and same(facts(state), before)


def uncounted(state: State) -> None:
    state.net[0].weight.data.add_(1.0)


def counted(state: State) -> None:
    with torch.no_grad():
        state.net[0].weight.add_(1.0)


@pytest.mark.parametrize("write", [counted, uncounted])
def test_what_is_written_after_a_step_that_was_left_out_belongs_to_no_step(
    write: Callable[[State], None],
) -> None:
    """Nobody may go on from it, and no commit is of it."""
    state = ready()
    with queued(state) as flag:
        flag.set()
        step(state)
        write(state)
        with pytest.raises(GroupBroken):
            state.commit()
    core_of(state).rollback()
    assert not core_of(state).is_clean and not core_of(state).has_stepped


@pytest.mark.parametrize("write", [counted, uncounted])
def test_script_that_writes_between_step_and_commit_waits_from_then_on(
    write: Callable[[State], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told once, and its steps are made whatever the flag says."""
    state, flag = ready(), AbortFlag(CPU)
    with entered(state) as watch:
        queue(state, flag, watch)
        for _ in range(KNOWN):
            step(state)
            write(state)
            state.commit()
        before = owned(state)
        flag.set()
        step(state)
        assert not alike(owned(state), before)
    assert capsys.readouterr().err.count("something writes to parameters") == 1


def test_first_steps_wait() -> None:
    """What the script does is found out meanwhile."""
    state, flag = ready(), AbortFlag(CPU)
    with entered(state) as watch:
        queue(state, flag, watch)
        flag.set()
        before = owned(state)
        step(state)
        state.commit()
        assert not alike(owned(state), before)


def test_first_gradient_of_a_parameter_waits() -> None:
    """SGD would keep momentum that nobody has written, and go on with it."""
    late = torch.nn.Linear(4, 4)
    net = model()
    every = [{"params": list(net.parameters())}, {"params": list(late.parameters())}]
    state = State(net=net, late=late, optimizer=KINDS["momentum"](every))
    with queued(state) as flag:
        flag.set()
        before = late.weight.clone()
        state.optimizer.zero_grad()
        (state.net(batch()).square().mean() + late(torch.ones(1, 4)).square().mean()).backward()
        state.optimizer.step()
        assert not torch.equal(late.weight, before)
        momentum: Any = state.optimizer.state[late.weight]["momentum_buffer"]
        gradient: Any = late.weight.grad
        assert torch.equal(momentum, gradient)


def with_closure(state: State) -> None:
    def closure() -> Any:
        state.optimizer.zero_grad()
        loss = state.net(batch()).square().mean()
        loss.backward()
        return loss

    state.optimizer.step(closure)


def with_scaler(state: State) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    state.optimizer.zero_grad()
    scaler.scale(state.net(batch()).square().mean()).backward()
    scaler.step(state.optimizer)


def with_hook(state: State) -> None:
    handle = state.optimizer.register_step_post_hook(lambda *_: None)
    step(state)
    handle.remove()


def with_wrapper(state: State) -> None:
    own = state.optimizer.step
    state.optimizer.step = lambda: own()
    step(state)
    del state.optimizer.step


@pytest.mark.parametrize("other", [with_closure, with_scaler, with_hook, with_wrapper])
def test_what_others_have_a_part_in_waits(other: Callable[[State], None]) -> None:
    """The step waits before it is made, and the flag tells the optimizer nothing."""
    state, watch = ready(), FakeWatch()
    with queued(state, watch) as flag:
        before, waited = owned(state), watch.synchronized
        watch.collectives += 1
        flag.set()
        other(state)
        assert watch.synchronized > waited
        assert not alike(owned(state), before)
        state.commit()
        assert not {"found_inf", "grad_scale"} & set(vars(state.optimizer))


def test_scheduler_of_torch_is_no_wrapper() -> None:
    """It counts the calls of `step`."""
    net = model()
    optimizer = KINDS["AdamW"](net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    state = State(net=net, optimizer=optimizer, scheduler=scheduler)
    with queued(state) as flag:
        before = owned(state)
        flag.set()
        step(state)
        assert alike(owned(state), before)


def test_step_that_began_with_an_exception_leaves_no_flag() -> None:
    """A script that catches it steps once more, by what it finds then."""
    state = ready()
    with queued(state) as flag:
        guard = core_of(state).guard
        assert guard.queued is not None and guard.queued.queue(state.optimizer)
        assert "found_inf" in vars(state.optimizer)
        flag.set()
        before = owned(state)
        step(state)
        assert alike(owned(state), before)
        assert "found_inf" not in vars(state.optimizer)


class OfGpu(AbortFlag):
    """The flag of a GPU that is a double, whose device is ours."""

    def __init__(self) -> None:
        super().__init__(CPU)
        self.has_come = True
        self.reads = 0

    def read(self, begun: int | None = None) -> Any:
        reading: Any = FlagReading(self._number, CPU, begun)
        self.reads += 1
        flag = self

        class Late:
            def query(self) -> bool:
                return flag.has_come

        reading._event = Late()
        return reading


class GpuWatch(FakeWatch):
    """Takes note of the marks that it is to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[DeviceMark | None] = []

    def synchronize(self, mark: Any = None) -> None:
        self.marks.append(mark)
        super().synchronize()


@contextmanager
def on_gpu(state: State) -> Iterator[tuple[OfGpu, GpuWatch]]:
    flag, watch = OfGpu(), GpuWatch()
    with entered(state, watch):
        queue(state, flag, watch)
        for _ in range(KNOWN):
            step(state)
            state.commit()
        flag.device = torch.device("cuda", 0)
        watch.marks.clear()
        yield flag, watch


def test_host_waits_in_commit_for_the_look_alone() -> None:
    """Not before the step, and not for the optimizer's kernels."""
    state = ready()
    with on_gpu(state) as (_, watch):
        step(state)
        (peers,) = watch.marks
        assert peers is not None and peers.query(), "nothing is waited for"
        state.commit()
        (_, look) = watch.marks
        assert look is not None and look is not peers


def test_commit_waits_for_collectives_after_the_step_too() -> None:
    """Sums of metrics, say. The look at the flag says nothing of them."""
    state = ready()
    with on_gpu(state) as (_, watch):
        watch.collectives = 7
        step(state)
        watch.collectives += 1
        state.commit()
        peers, look, last = watch.marks
        assert peers is not None and peers.begun is None
        assert look is not None and look.begun == 7
        assert last is None


WAITED_S, ELSE_S = 0.25, 4.0


@pytest.mark.parametrize("place", ["no flag", "cpu", "cuda"])
def test_what_a_queued_step_waited_for_other_ranks_is_counted(
    place: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the last future of the backward pass to the step, as without a flag: a late node is
    found by that. What comes after is no wait for others.
    """
    now, wait, state, flag = [100.0], StepWait(), ready(), OfGpu()
    monkeypatch.setattr(collective_wait, "_now_s", lambda: now[0])
    monkeypatch.setattr(session_module, "step_wait", wait)
    bench.begin()
    session: Any = bench.session
    with entered(state, session):
        if place != "no flag":
            queue(state, flag, session)
        for number in range(2 * KNOWN):
            if number == KNOWN and place == "cuda":
                flag.device = torch.device("cuda", 0)
            now[0] += ELSE_S
            wait.took_future()
            now[0] += WAITED_S
            step(state)
            now[0] += ELSE_S
            state.commit()
    assert state.step == 2 * KNOWN and flag.reads == (
        0 if place == "no flag" else 2 * KNOWN - FIRST_COMMITS
    )
    assert [blocked_s for blocked_s, _ in wait.ends] == [
        WAITED_S * (number + 1) for number in range(2 * KNOWN)
    ]


def test_end_of_the_world_before_the_device_has_come_to_it_counts_nothing() -> None:
    """Later the device says what it did."""
    state = ready()
    with on_gpu(state) as (flag, watch):
        before = facts(state)
        flag.set()
        step(state)
        flag.has_come, watch.is_over = False, True
        with pytest.raises(Interrupted):
            state.commit()
        assert state.step == KNOWN
    flag.has_come = True
    core_of(state).rollback()
    assert core_of(state).is_clean and same(facts(state), before)


def test_end_of_the_world_behind_a_step_that_was_made_counts_it() -> None:
    """As it does where the host has waited before."""
    state = ready()
    with on_gpu(state) as (_, watch):
        step(state)
        watch.is_over = True
        with pytest.raises(Interrupted):
            state.commit()
        assert state.step == KNOWN + 1
    core_of(state).rollback()
    assert core_of(state).is_clean


def test_device_that_never_says_what_it_did_has_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may go on from it."""
    monkeypatch.setattr("elasticd.train.process_group.queued_steps.PATIENCE_S", 0.01)
    state = ready()
    with on_gpu(state) as (flag, _):
        flag.set()
        step(state)
        flag.has_come = False
    core_of(state).rollback()
    assert not core_of(state).is_clean and not core_of(state).has_stepped


class Own(torch.optim.AdamW):
    """An optimizer of the script's."""


def refused(entries: dict[str, Any], on_nan: str = "ignore", device: torch.device = CPU) -> str:
    state = State(**entries)
    with entered(state) as watch:
        guard, every = core_of(state).guard, core_of(state).of_kind(object)
        with pytest.raises(CallError) as caught:
            QueuedSteps.of(AbortFlag(CPU), guard.optimizers, every, watch, on_nan)
    return str(caught.value)


def test_what_cannot_be_queued_is_refused_with_a_sentence() -> None:
    """It says what to change, or to leave the flag out."""
    net, other = model(), model()
    fused = torch.optim.AdamW(net.parameters(), fused=True)
    own = Own(net.parameters(), fused=True)
    second = torch.optim.SGD(other.parameters(), fused=True)
    plain = torch.optim.AdamW(net.parameters())
    scaler = torch.amp.GradScaler("cpu")
    said = [
        refused({"net": net, "optimizer": plain}),
        refused({"net": net, "optimizer": own}),
        refused({"net": net, "optimizer": fused, "scaler": scaler}),
        refused({"net": net, "other": other, "one": fused, "two": second}),
        refused({"net": net, "optimizer": fused}, "skip"),
    ]
    assert all("abort_flag=True" in each and each.endswith("out of elasticd.run.") for each in said)
    assert "fused=True" in said[0] and "fused=True" in said[1] and "GradScaler" in said[2]
    assert "2 optimizers" in said[3] and "--on-nan skip" in said[4]


def test_scaler_that_is_switched_off_is_no_obstacle() -> None:
    """It does nothing."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    state = State(net=net, optimizer=optimizer, scaler=torch.amp.GradScaler("cpu", enabled=False))
    with queued(state):
        step(state)

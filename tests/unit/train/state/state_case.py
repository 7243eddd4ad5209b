"""Small trainings that can be interrupted at every named point of a step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from elasticd.train.interrupt import Interrupted
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.state.state import State, core_of
from elasticd.train.world import World

torch.set_num_threads(1)

STEPS = 5

At = Callable[[str], None]
Step = Callable[[State, At], None]
Case = tuple[State, Step]


class FakeWatch:
    """A generation that is over once `is_over` is set; counts collectives as told."""

    generation = 1

    def __init__(self) -> None:
        self.spent = SecondsSpent()
        self.is_over = False
        self.collectives = 0
        self.committed_at: list[tuple[int, int]] = []
        self.paused: list[str | None] = []
        self.synchronized = 0

    def check(self, step: int) -> None:
        if self.is_over:
            raise Interrupted

    def committed(self, position: tuple[int, int]) -> None:
        self.committed_at.append(position)

    def synchronize(self, mark: object = None) -> None:
        self.synchronized += 1
        self.check(0)

    def pause(self, why: str | None) -> None:
        self.paused.append(why)

    def delivered(self) -> None:
        self.check(0)

    def sequence(self) -> int | None:
        return self.collectives


def world(rank: int = 0, size: int = 1, generation: int = 1) -> World:
    return World(
        rank=rank,
        size=size,
        local_rank=rank,
        local_size=size,
        node="n",
        node_rank=0,
        nodes=1,
        generation=generation,
        device=torch.device("cpu"),
    )


@contextmanager
def entered(state: State, watch: FakeWatch | None = None) -> Iterator[FakeWatch]:
    """Be in `train`, as `run` does it."""
    watch = watch or FakeWatch()
    core_of(state).rollback()
    core_of(state).enter(world(), watch)
    try:
        yield watch
    finally:
        core_of(state).leave()


def train(case: Case, *, at: At = lambda _: None, steps: int = STEPS) -> int:
    """Go to `steps` commits, into `train` again after each Interrupted; how often that was.

    A script is interrupted where it waits for others, so each point counts as a collective.
    """
    state, step = case
    interrupts = 0
    while True:
        try:
            with entered(state) as watch:

                def reach(name: str, watch: FakeWatch = watch) -> None:
                    watch.collectives += 1
                    at(name)

                while state.step < steps:
                    step(state, reach)
                return interrupts
        except Interrupted:
            interrupts += 1
            assert interrupts < 10
        core_of(state).rollback()
        assert core_of(state).is_clean


class Killer:
    """Interrupts when a name is passed in a step, once."""

    def __init__(self, state: State, name: str, step: int) -> None:
        self._state = state
        self._name = name
        self._step = step
        self.has_struck = False

    def __call__(self, name: str) -> None:
        if name == self._name and self._state.step == self._step and not self.has_struck:
            self.has_struck = True
            raise Interrupted


def facts(state: State) -> tuple[str, list[torch.Tensor]]:
    """All of a committed state; to be compared with `same`."""
    whole = core_of(state).tree()
    return whole.skeleton, [tensor.detach().clone() for tensor in whole.tensors]


def same(one: tuple[str, list[torch.Tensor]], other: tuple[str, list[torch.Tensor]]) -> bool:
    """True if equal bit for bit."""
    return (
        one[0] == other[0]
        and len(one[1]) == len(other[1])
        and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    )


# --- trainings ----------------------------------------------------------------------------------


def model(width: int = 4) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(width, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(8, 1),
    )


def batch(width: int = 4) -> torch.Tensor:
    """Random, so that the generator's state matters too."""
    return torch.randn(6, width)


def plain_step(state: State, at: At) -> None:
    """One optimizer, BatchNorm, dropout, a scheduler, a plain value."""
    at("begin")
    state.optimizer.zero_grad()
    loss = state.model(batch()).square().mean()
    at("forward")
    loss.backward()
    at("backward")
    state.optimizer.step()
    at("step")
    if hasattr(state, "scheduler"):
        state.scheduler.step()
        state.seen = state.seen + 1
        state.history.append(state.seen)
        at("schedule")
    state.commit(loss=loss)
    at("commit")


def plain(make: Callable[..., torch.optim.Optimizer], **options: Any) -> Case:
    net = model()
    optimizer = make(net.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    return (
        State(model=net, optimizer=optimizer, scheduler=scheduler, seen=0, history=[]),
        plain_step,
    )


def accumulation() -> Case:
    """A commit covers three micro-batches."""
    net = model()

    def step(state: State, at: At) -> None:
        state.optimizer.zero_grad()
        for part in range(3):
            state.model(batch()).square().mean().backward()
            at(f"part {part}")
        state.optimizer.step()
        at("step")
        state.commit()

    return State(model=net, optimizer=torch.optim.AdamW(net.parameters())), step


def scaled(make: Callable[..., torch.optim.Optimizer] = torch.optim.Adam, **options: Any) -> Case:
    """AMP with a scaler whose scale grows and falls."""
    net = model()
    state = State(
        model=net,
        optimizer=make(net.parameters(), **options),
        scaler=torch.amp.GradScaler("cpu", growth_interval=2, init_scale=4.0),
    )

    def step(state: State, at: At) -> None:
        state.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = state.model(batch()).square().mean()
        state.scaler.scale(loss).backward()
        at("backward")
        state.scaler.unscale_(state.optimizer)
        at("unscale")
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
        if state.step == 2:
            next(state.model.parameters()).grad.fill_(float("inf"))
            state.scaler._per_optimizer_states[id(state.optimizer)]["found_inf_per_device"] = {
                torch.device("cpu"): torch.tensor(1.0)
            }
        state.scaler.step(state.optimizer)
        at("step")
        state.scaler.update()
        at("update")
        state.commit()

    return state, step


def rivals() -> Case:
    """Two optimizers in one step, as in a GAN."""
    one, two = model(), model()
    state = State(
        one=one,
        two=two,
        first=torch.optim.Adam(one.parameters(), lr=0.01),
        second=torch.optim.SGD(two.parameters(), lr=0.1, momentum=0.9),
    )

    def step(state: State, at: At) -> None:
        data = batch()
        state.first.zero_grad()
        (state.one(data) - state.two(data).detach()).square().mean().backward()
        at("backward")
        state.first.step()
        at("between")
        state.second.zero_grad()
        (state.two(data) - state.one(data).detach()).square().mean().backward()
        at("second backward")
        state.second.step()
        at("step")
        state.commit()

    return state, step


def averaged(width: int = 4) -> Case:
    """An averaged model beside the one that is trained; large if its width is."""
    net = model(width)
    decay = torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)  # type: ignore[no-untyped-call]
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=decay)
    state = State(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), average=average)

    def step(state: State, at: At) -> None:
        state.optimizer.zero_grad()
        state.model(batch(width)).square().mean().backward()
        at("backward")
        state.optimizer.step()
        at("step")
        state.average.update_parameters(state.model)
        at("average")
        state.commit()

    return state, step


def closure() -> Case:
    """LBFGS calls forward and backward several times within its step."""
    net = torch.nn.Linear(4, 1)
    torch.nn.init.constant_(net.weight, 0.5)
    torch.nn.init.zeros_(net.bias)
    state = State(model=net, optimizer=torch.optim.LBFGS(net.parameters(), max_iter=3))

    def step(state: State, at: At) -> None:
        data, calls = batch(), 0

        def evaluate() -> torch.Tensor:
            nonlocal calls
            calls += 1
            state.optimizer.zero_grad()
            loss: torch.Tensor = (state.model(data) - 1).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            at(f"call {calls}")
            return loss

        state.optimizer.step(evaluate)
        at("step")
        state.commit()

    return state, step


PLAIN = ("begin", "forward", "backward", "step", "schedule", "commit")
CASES: dict[str, tuple[Callable[[], Case], tuple[str, ...]]] = {
    "SGD": (lambda: plain(torch.optim.SGD, lr=0.1, momentum=0.9), PLAIN),
    "Adam": (lambda: plain(torch.optim.Adam, amsgrad=True), PLAIN),
    "fused": (lambda: plain(torch.optim.AdamW, fused=True), ("step",)),
    "foreach": (lambda: plain(torch.optim.Adam, foreach=True), ("step",)),
    "accumulation": (accumulation, ("part 0", "part 1", "part 2", "step")),
    "scaler": (scaled, ("backward", "unscale", "step", "update")),
    "fused scaler": (
        lambda: scaled(torch.optim.Adam, fused=True),
        ("backward", "unscale", "step", "update"),
    ),
    "two optimizers": (rivals, ("backward", "between", "second backward", "step")),
    "average": (averaged, ("backward", "step", "average")),
    "closure": (closure, ("call 1", "call 2", "step")),
}
"""Ways to train, and the points of a step at which they may be interrupted."""

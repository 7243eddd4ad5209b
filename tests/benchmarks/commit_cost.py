"""What a step pays for being managed: `python -m tests.benchmarks.commit_cost`.

Every part that elasticd adds to a training step, by the CPU time of the thread that trains, so that
a busy machine shows less. Two readings of each: in a loop that does nothing else, where all is in
the caches, and after a forward and a backward pass and 8 MB of other memory.
"""

import argparse
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from elasticd.channel.worker import FromWorker, ToWorker
from elasticd.train.data.loader import Loader, loader_core_of
from elasticd.train.session.agent_session import AgentSession
from elasticd.train.state.state import State, core_of
from elasticd.train.world import World
from tests.benchmarks import observation
from tests.benchmarks.observation import SilentGroup, look_at_collectives, observe, sums, turns
from tests.benchmarks.report import Figure, Result, Series, dump, show

__all__ = ["measure"]

TRIALS = 400
LAYERS = 7
"""Of Linear and BatchNorm: 28 parameters, 21 buffers, as in a small convolutional network."""
WIDTH = 16
THRASHED_FLOATS = 1 << 21
SHARES = (64, 512)
BATCHES = 100
"""Of an epoch."""
PASSES = 9
QUANTILES = {"hot": 0.0, "cold": 0.5}
"""The least where all is in the caches. With cold ones it varies, and the median counts."""
TARGET_US = 100.0
"""1 % of a step of 10 ms (issue 3)."""
OBSERVATION_US = 2.0
"""What observation may add to a step (issue 10)."""
TURNS = 10
"""So many turns with and without observation for each trial of the parts, where all is hot."""

_MODEL = (
    f"{LAYERS} times Linear and BatchNorm1d of width {WIDTH} (28 parameters, 21 buffers), Adam, "
    "StepLR, a Loader, two plain values, a loss tensor given to each commit; one process, one "
    "thread of torch, a session without a connection and without a group."
)
_CLOCK = (
    "CPU time of the training thread. Hot: nothing but the managed calls, the least of all tries. "
    "Cold: a forward and a backward pass and 8 MB written before each try; the median."
)
_LOADERS = (
    "Loader: CPU time per batch of a whole epoch of both loaders in turn, its order included, for "
    "a dataset that fetches a batch at once and does nothing; the least of several epochs."
)
METHOD = (_MODEL, _CLOCK, _LOADERS, observation.METHOD)


class SilentWire:
    """A connection that says and hears nothing."""

    def send(self, message: FromWorker, *, is_news: bool = False) -> None:
        pass

    def messages(self) -> Iterator[ToWorker]:
        return iter(())

    def close(self) -> None:
        pass


class Rows:
    """Fetches a whole batch at once, so that the loaders' own work is what is seen."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


class Training:
    """A state in `train`, and one step of it."""

    def __init__(self) -> None:
        layers = [
            part
            for _ in range(LAYERS)
            for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH))
        ]
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 100)
        self.data = Loader(Rows(1 << 30), 64, collate_fn=_as_it_is)
        self.state: Any = State(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            data=self.data,
            best=0.0,
            history=[1, 2, 3],
        )
        self.session = AgentSession(SilentWire())
        core_of(self.state).enter(_world(), self.session)
        self.batches = iter(self.data)
        self.inputs = torch.randn(8, WIDTH)
        self.loss = self.model(self.inputs).square().mean()
        self.memory = torch.zeros(THRASHED_FLOATS)

    def touch(self) -> None:
        """Do the least that makes the next commit a whole one."""
        next(self.batches)
        self.scheduler.last_epoch += 1
        _hooks(self)

    def step(self) -> None:
        """Do what a script does between two commits, and touch as much as a large model would."""
        self.compute()
        self.optimizer.step()
        self.scheduler.step()

    def compute(self) -> None:
        """Do the part of a step before the optimizer's."""
        next(self.batches)
        self.optimizer.zero_grad()
        self.loss = self.model(self.inputs).square().mean()
        self.loss.backward()
        self.memory.add_(1.0)

    def commit(self) -> None:
        self.state.commit(loss=self.loss)


def measure(trials: int = TRIALS) -> Result:
    """Time each part hot and cold, then the loaders against torch's."""
    torch.set_num_threads(1)
    gc.collect()
    gc.disable()
    try:
        training = Training()
        for _ in range(20):  # Past probation, and all memory taken.
            training.step()
            training.commit()
        series = _parts(training, trials)
        observed = _observation(training, trials)
        loaders = {share: _loaders(share) for share in SHARES}
    finally:
        gc.enable()
    above = {share: ours - peer for share, (ours, peer) in loaders.items()}
    figures = [
        Figure(name=f"Loader above torch's, share of {share}", value=value, unit="us")
        for share, value in above.items()
    ]
    for kind, percent in QUANTILES.items():
        costs = {each.name: each.at(percent) for each in series if each.name.endswith(kind)}
        figures += [Figure(name=name, value=value, unit="us") for name, value in costs.items()]
        whole = sum(value for name, value in costs.items() if not name.startswith(" "))
        figures.append(
            Figure(
                name=f"commit, hooks and Loader, {kind}",
                value=whole + above[SHARES[0]],
                unit="us",
                target=TARGET_US,
            )
        )
    figures += [
        Figure(
            name=each.name.replace(", above", ""),
            value=each.at(0.5),
            unit="us",
            target=OBSERVATION_US,
        )
        for each in observed
        if ", above" in each.name
    ]
    return Result(
        name="commit_cost",
        title="What a step pays for being managed",
        command=f"python -m tests.benchmarks.commit_cost --trials {trials}",
        method=METHOD,
        series=(*series, *observed),
        figures=tuple(figures),
    )


def _parts(training: Training, trials: int) -> tuple[Series, ...]:
    series = []
    befores = {"hot": (training.touch, _nothing), "cold": (training.step, training.compute)}
    for kind, (whole, half) in befores.items():
        parts: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "commit": (whole, training.commit)
        }
        for name, part in _inner(training).items():
            parts[f"  {name}"] = whole, part
        parts["hooks of the optimizer"] = half, lambda: _hooks(training)
        for name, (before, part) in parts.items():
            us = tuple(_timed(part, before, training.commit) for _ in range(trials))
            series.append(Series(name=f"{name}, {kind}", values=us, unit="us"))
    return tuple(series)


def _observation(training: Training, trials: int) -> tuple[Series, ...]:
    """Steps with and without observation, in turns, hot and cold."""
    group = SilentGroup()
    training.session.use(group)

    def step(is_cold: bool, is_observed: bool) -> float:
        look = look_at_collectives if is_observed else _nothing

        def observed() -> None:
            next(training.batches)
            look()
            _hooks(training)
            training.commit()

        observe(training.session, training.data, training.state, is_on=is_observed)
        if is_cold:
            training.compute()
        training.scheduler.last_epoch += 1
        group.begun += 1
        before = sums(training.session)
        took_us = _timed(observed, _nothing, _nothing)
        assert (sums(training.session) != before) is is_observed
        return took_us

    series = []
    for kind, count in (("hot", TURNS * trials), ("cold", trials)):
        steps = partial(step, kind == "cold", True), partial(step, kind == "cold", False)
        with_us, without_us = turns(steps, count)
        above_us = tuple(a - b for a, b in zip(with_us, without_us, strict=True))
        series += [
            Series(name=f"step with observation, {kind}", values=with_us, unit="us"),
            Series(name=f"step without observation, {kind}", values=without_us, unit="us"),
            Series(name=f"observation, above, {kind}", values=above_us, unit="us"),
        ]
    return tuple(series)


def _inner(training: Training) -> dict[str, Callable[[], object]]:
    """The parts of a commit; each is called in the place of the commit."""
    state, session = training.state, training.session
    guard, keep, given = core_of(state).guard, core_of(state)._keep, core_of(state).commit_scalars
    kept = keep.collect()

    def tell() -> None:
        session.committed((core_of(state).step, 0))
        session.check(core_of(state).step)

    def loader() -> None:
        core_of(state).loaders.commit(None)

    return (
        {
            "begin_commit of the guard": guard.begin_commit,
            "collect of the keep": keep.collect,
            "copy of the keep": lambda: keep.copy(kept),
            "loader and ledger": loader,
            "end_commit of the guard": guard.end_commit,
            "reseed": lambda: core_of(state)._random.reseed(0, core_of(state).step),
            "scalars": lambda: given.set(given.checked({"loss": training.loss}), 1, None),
            "session": tell,
        }
        if (kept := keep.collect())
        else {}
    )


def _hooks(training: Training) -> None:
    """What torch calls around a step of an optimizer."""
    guard, optimizer = core_of(training.state).guard, training.optimizer
    guard._before(optimizer, (optimizer,), {})
    guard._after(optimizer, (optimizer,), {})


def _loaders(share: int) -> tuple[float, float]:
    """Return what a batch costs from a Loader and from torch's, both in microseconds."""
    rows: Any = Rows(share * BATCHES)
    ours = Loader(rows, share, collate_fn=_as_it_is)
    loader_core_of(ours).place(0, 1, AgentSession(SilentWire()))
    peer = DataLoader(rows, share, shuffle=True, collate_fn=_as_it_is)
    least = [float("inf"), float("inf")]
    for _ in range(PASSES):
        began_ns = time.thread_time_ns()
        for _ in ours:
            loader_core_of(ours).commit()  # As in training, so that no spans pile up.
        between_ns = time.thread_time_ns()
        for _ in peer:
            pass
        ended_ns = time.thread_time_ns()
        least[0] = min(least[0], (between_ns - began_ns) / BATCHES / 1e3)
        least[1] = min(least[1], (ended_ns - between_ns) / BATCHES / 1e3)
    return least[0], least[1]


def _timed(
    function: Callable[[], object], before: Callable[[], object], after: Callable[[], object]
) -> float:
    """Return what one call costs in microseconds of CPU time, without what reading it costs."""
    before()
    began_ns = time.thread_time_ns()
    function()
    ended_ns = time.thread_time_ns()
    after()
    return (ended_ns - began_ns) / 1e3 - _READING_US


def _reading_us() -> float:
    """Return the least that lies between two readings of the clock."""
    readings_ns = [time.thread_time_ns() for _ in range(1000)]
    return min(b - a for a, b in itertools.pairwise(readings_ns)) / 1e3


_READING_US = _reading_us()


def _world() -> World:
    return World(
        rank=0, size=1, local_rank=0, local_size=1, node="n", node_rank=0, nodes=1, generation=1,
        device=torch.device("cpu"),
    )  # fmt: skip


def _as_it_is(batch: list[int]) -> list[int]:
    return batch


def _nothing() -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result = measure(given.trials)
    show(result)
    if given.json is not None:
        dump([result], given.json)


if __name__ == "__main__":
    main()

"""CPU time of a step under elasticd beside bare DDP, in the same processes, in turns.

`overhead` measures what a user feels, and needs a quiet machine. This one asks only for the CPU
time of the thread that trains. Both loops live in each of two ranks and take turns in short blocks,
so what another process of the machine does to the caches hits both, and nobody's wait counts.
"""

import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as hooks
from torch.utils.data import DataLoader, DistributedSampler

from elasticd.train.data.loader import Loader
from elasticd.train.process_group.group import Group
from elasticd.train.session.agent_session import AgentSession
from elasticd.train.state.state import State, core_of
from elasticd.train.world import World
from tests.benchmarks.call import run
from tests.benchmarks.commit_cost import SilentWire
from tests.benchmarks.paired_loop import BATCH, Rows, model_and_more
from tests.benchmarks.report import Figure, Result, Series
from tests.fixtures.ranks import HOST, entered

__all__ = ["measure"]

TRIALS = 60
"""Pairs of blocks."""
BLOCK = 10
WARM_UP = 2
"""Steps of a block that do not count: the caches hold the other loop's."""
FIRST_BLOCKS = 2
RANKS = 2
LIMIT_S = 600.0
TARGET_US = 90.0
"""1 % of a step of 9 ms."""

Step = Callable[[], None]


def measure(trials: int) -> Result:
    """Let both ranks take their turns."""
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    context = multiprocessing.get_context("spawn")
    lines, processes = [], []
    for rank in range(RANKS):
        ours, theirs = context.Pipe()
        process = context.Process(target=_rank, args=(theirs, rank, store.port, trials))
        process.start()
        lines.append(ours)
        processes.append(process)
    try:
        found = [_heard(line) for line in lines]
    finally:
        for process in processes:
            process.kill()
            process.join()
    return _result(trials, found)


def _heard(line: Connection) -> dict[str, list[float]]:
    if not line.poll(LIMIT_S):
        raise RuntimeError("A rank of the benchmark said nothing.")
    found: dict[str, list[float]] = line.recv()
    return found


def _rank(line: Connection, rank: int, port: int, trials: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    group = Group(entered(rank, RANKS, port), backend="gloo", timeout_s=60.0)
    group.form()
    arms = {"bare": _bare(rank), "elasticd": _managed(group, rank)}
    gc.collect()
    gc.disable()
    us: dict[str, list[float]] = {arm: [] for arm in arms}
    for number in range(trials + FIRST_BLOCKS):
        for arm in sorted(arms, reverse=bool(number % 2)):
            took_us = list(arms[arm]())
            if number >= FIRST_BLOCKS:
                us[arm] += took_us[WARM_UP:]
    line.send(us)
    time.sleep(LIMIT_S)  # The other may still be in a collective with this one; it is ended.


def _timed(step: Step) -> Iterator[float]:
    """Microseconds of CPU time of each step of a block."""
    for _ in range(BLOCK):
        began_ns = time.thread_time_ns()
        step()
        yield (time.thread_time_ns() - began_ns) / 1e3


def _bare(rank: int) -> Callable[[], Iterator[float]]:
    """Return the loop of a script without us: its group is torch's own."""
    with _torchs_own_groups():
        group = dist.new_group(list(range(RANKS)))
    model, optimizer, scheduler = model_and_more()
    wrapped = DistributedDataParallel(model, process_group=group)
    data = Rows()
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=RANKS, rank=rank)
    loader = DataLoader(data, batch_size=BATCH // RANKS, sampler=sampler)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    source = batches()

    def step() -> None:
        inputs, labels = next(source)
        loss: Any = torch.nn.functional.cross_entropy(wrapped(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()

    def block() -> Iterator[float]:
        # Hooks around optimizers are for the whole process.
        before, after = hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks
        kept = before.copy(), after.copy()
        before.clear()
        after.clear()
        yield from _timed(step)
        before.update(kept[0])
        after.update(kept[1])

    return block


@contextmanager
def _torchs_own_groups() -> Iterator[None]:
    """Let torch make groups of its own class for a while."""
    torch_groups: Any = dist.distributed_c10d
    ours = torch_groups._new_process_group_helper
    torch_groups._new_process_group_helper = getattr(ours, "__wrapped__", ours)
    try:
        yield
    finally:
        torch_groups._new_process_group_helper = ours


def _managed(group: Group, rank: int) -> Callable[[], Iterator[float]]:
    """Return the loop of `paired_loop`, with a session whose connection says nothing."""
    model, optimizer, scheduler = model_and_more()
    data = Loader(Rows(), batch_size=BATCH, seed=0)
    state: Any = State(model=model, optimizer=optimizer, scheduler=scheduler, data=data)
    session = AgentSession(SilentWire())
    session.use(group)
    world = World(
        rank=rank, size=RANKS, local_rank=rank, local_size=RANKS, node="n", node_rank=0, nodes=1,
        generation=1, device=torch.device("cpu"),
    )  # fmt: skip
    core_of(state).enter(world, session)
    wrapped = DistributedDataParallel(model)

    def batches() -> Iterator[Any]:
        while True:
            yield from state.data

    source = batches()

    def step() -> None:
        inputs, labels = next(source)
        loss: Any = torch.nn.functional.cross_entropy(wrapped(inputs), labels)
        loss = loss * state.data.weight
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.scheduler.step()
        state.commit(loss=loss)

    def block() -> Iterator[float]:
        yield from _timed(step)

    return block


def _result(trials: int, found: list[dict[str, list[float]]]) -> Result:
    bare = [us for each in found for us in each["bare"]]
    ours = [us for each in found for us in each["elasticd"]]
    before, after = (statistics.quantiles(each, n=4) for each in (bare, ours))
    return Result(
        name="step_cpu",
        title="In-process: CPU time of a step without faults",
        command=f"python -m tests.benchmarks.step_cpu --trials {trials}",
        method=METHOD,
        series=(
            Series(name="bare DDP, per step", values=tuple(bare), unit="us"),
            Series(name="elasticd, per step", values=tuple(ours), unit="us"),
        ),
        figures=(
            Figure(
                name="more CPU time, lower quartile",
                value=after[0] - before[0],
                unit="us",
                target=TARGET_US,
            ),
            Figure(name="more CPU time, median", value=after[1] - before[1], unit="us"),
        ),
    )


METHOD = (
    (
        "Model, batches and loops of `overhead`, two ranks over Gloo, each on a core of its own; "
        "but both loops live in each process: the bare one over a group of torch's own class, the "
        "other over elasticd's, with a State, a Loader and a session whose connection says nothing."
    ),
    (
        f"CPU time of the training thread in each step but the first {WARM_UP} of a block of "
        f"{BLOCK}; the blocks take turns, in the order a b, b a. What else the machine does only "
        "ever adds to it (cold caches, a shared core), so the figure is the difference of the "
        "lower quartiles. What a step waits for is not in it, nor what Gloo's threads and the "
        "beating one use."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

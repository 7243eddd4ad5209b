"""The loader: resume deep in an epoch of 10^9 samples, and its cost per batch beside torch's.

A dataset that computes its samples holds none, so what is measured is the order: where torch's
RandomSampler shuffles a list, the loader computes a keyed bijection.
"""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

import elasticd
from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

TRIALS = 20
BATCH = 64
DEEP_LENGTH, DEEP_STEP = 10**9, 10**7
LENGTH = 10**6
BATCHES = 500
"""Per trial and loader."""
LIMIT_S = 300.0


class Virtual(Dataset[torch.Tensor]):
    """Samples in no memory."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)


def measure(trials: int) -> Result:
    """Resume in a process of its own each time; then both loaders in turn, in this one."""
    resumed, memory = [], []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for _ in range(trials):
            took_s, grown_mib = pool.apply_async(_resume).get(LIMIT_S)
            resumed.append(took_s)
            memory.append(grown_mib)
    torch.set_num_threads(1)
    mine, peer, first_mine, first_peer = [], [], [], []
    for _ in range(trials):
        began_s = time.perf_counter()
        own = iter(elasticd.Loader(Virtual(LENGTH), batch_size=BATCH, seed=1))
        next(own)
        first_mine.append(time.perf_counter() - began_s)
        mine.append(_per_batch(own))
        data = Virtual(LENGTH)
        began_s = time.perf_counter()
        other = iter(DataLoader(data, batch_size=BATCH, sampler=RandomSampler(data)))
        next(other)
        first_peer.append(time.perf_counter() - began_s)
        peer.append(_per_batch(other))
    ratio = statistics.median(mine) / statistics.median(peer)
    resume = Series(name="resume at step 10^7 of 10^9 samples", values=tuple(resumed))
    grown = Series(name="peak memory that it took", values=tuple(memory), unit="MiB")
    return Result(
        name="loading",
        title="Loader: resume, and cost per batch",
        command=f"python -m tests.benchmarks.loading --trials {trials}",
        method=METHOD,
        series=(
            resume,
            grown,
            Series(name="elasticd.Loader, per batch", values=tuple(mine), unit="us"),
            Series(name="torch DataLoader, per batch", values=tuple(peer), unit="us"),
            Series(name="elasticd.Loader, first batch", values=tuple(first_mine)),
            Series(name="torch DataLoader, first batch", values=tuple(first_peer)),
        ),
        figures=(
            Figure(name="resume, max", value=resume.at(1.0), target=0.010),
            Figure(name="peak memory of a resume, max", value=grown.at(1.0), unit="MiB"),
            Figure(name="elasticd.Loader / torch DataLoader, per batch", value=ratio, unit="x"),
        ),
    )


def _resume() -> tuple[float, float]:
    """In a fresh process: load a position, fetch a batch; seconds, and MiB that the peak grew."""
    torch.set_num_threads(1)
    next(iter(elasticd.Loader(Virtual(1000), batch_size=BATCH)))  # All is imported.
    loader = elasticd.Loader(Virtual(DEEP_LENGTH), batch_size=BATCH, seed=3)
    state = {**loader.state_dict(), "consumed": DEEP_STEP * BATCH}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.perf_counter()
    fresh = elasticd.Loader(Virtual(DEEP_LENGTH), batch_size=BATCH, seed=3)
    fresh.load_state_dict(state)
    batch = next(iter(fresh))
    took_s = time.perf_counter() - began_s
    assert len(batch) == BATCH
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return took_s, (after - before) / 1024


def _per_batch(batches: Iterator[torch.Tensor]) -> float:
    """Microseconds."""
    began_s = time.perf_counter()
    _exhaust(islice(batches, BATCHES))
    return (time.perf_counter() - began_s) / BATCHES * 1e6


def _exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass


METHOD = (
    (
        f"Batches of {BATCH} from a dataset that computes its samples (`torch.tensor(index)`), no "
        "data workers, world of one, one thread of torch."
    ),
    (
        "Resume: in a fresh process that has imported all and fetched a batch from a small "
        "loader: build a Loader over 10^9 samples, load the position of step 10^7, fetch its "
        "batch. Memory: how much the process's peak grew by that."
    ),
    (
        f"Per batch: {BATCHES} batches after the first, of 10^6 samples, the two loaders in turn; "
        "torch's with its RandomSampler."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

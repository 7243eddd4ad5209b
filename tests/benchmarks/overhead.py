"""What a step costs under `elasticd.run`, beside bare DDP, when nothing fails.

Two pairs of processes train the same: two ranks under a plain process group, two under `elasticd
run`. Only one pair trains at a time: they take turns in blocks of steps, so that a slow second of
the machine hits both. The parts of the cost, in microseconds, are in `commit_cost`.
"""

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from elasticd.store.embedded import free_port
from tests.benchmarks.bench import own_environ, start, workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commits
from tests.benchmarks.inprocess_site import InProcessRun
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["interval", "measure"]

TRIALS = 10_000
"""Paired steps."""
BLOCK = 20
WARM_UP = 2
"""Of each block: the caches hold the other pair's, and the ranks have to meet."""
FIRST_BLOCKS = 3
RESAMPLES = 2000
CONFIDENCE = 0.95
RANKS = 2
LIMIT_S = 120.0
ARMS = ("bare", "elasticd")
SCRIPT = Path(__file__).with_name("paired_loop.py")


class Musician:
    """One rank of one pair."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.file = line.makefile("rw")

    def ask(self, steps: int) -> None:
        self.file.write(f"{steps}\n")
        self.file.flush()

    def hear(self) -> list[float]:
        text = self.file.readline()
        if not text:
            raise RuntimeError("A process of the benchmark ended; see its log (BENCH_KEEP=1).")
        return [float(word) for word in text.split()]


def measure(trials: int) -> Result:
    """Let both pairs take turns."""
    took: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    kept = BLOCK - WARM_UP
    with workplace() as folder, _pairs(folder) as pairs:
        blocks = -(-trials // kept) + FIRST_BLOCKS
        for number in range(blocks):
            # A b, b a: neither is always the first after the other.
            for arm in ARMS if number % 2 else reversed(ARMS):
                for rank in range(RANKS):
                    pairs[arm, rank].ask(BLOCK)
                every = [pairs[arm, rank].hear() for rank in range(RANKS)]
                if number >= FIRST_BLOCKS:
                    # The slower rank's: a step is over when all have it.
                    slower = [max(each) for each in zip(*every, strict=True)]
                    took[arm].append(slower[WARM_UP:])
    return _result(trials, torch.tensor(took["bare"]), torch.tensor(took["elasticd"]))


@contextlib.contextmanager
def _pairs(folder: Path) -> Iterator[dict[tuple[str, int], Musician]]:
    """Start both, and wait until all four are there."""
    path = folder / "conductor"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server,
        Commits(folder) as feed,
    ):
        server.bind(str(path))
        server.listen()
        server.settimeout(LIMIT_S)
        env = {"BENCH_CONDUCTOR": str(path), "OMP_NUM_THREADS": "1"}
        script = (str(SCRIPT), "elasticd")
        run = InProcessRun(folder, feed, "overhead", workers=RANKS, more=env, script=script)
        run.start()
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for rank in range(RANKS):
            own = own_environ({**env, **meeting, "RANK": str(rank), "WORLD_SIZE": str(RANKS)})
            argv = [sys.executable, str(SCRIPT), "bare"]
            start(argv, env={**own, "GLOO_SOCKET_IFNAME": "lo"}, log=folder / "bare.log")
        found: dict[tuple[str, int], Musician] = {}
        try:
            while len(found) < len(ARMS) * RANKS:
                line, _ = server.accept()
                line.settimeout(LIMIT_S)
                one = Musician(line)
                arm, place = one.file.readline().split()
                found[arm, int(place)] = one
            yield found
        finally:
            for each in found.values():
                each.line.close()
            run.stop()


def interval(bare: torch.Tensor, managed: torch.Tensor) -> tuple[float, float]:
    """Return the bootstrap interval of the ratio of the medians; rows are blocks.

    Whole blocks are drawn, both pairs' together: steps that follow each other are alike.
    """
    generator = torch.Generator().manual_seed(1)
    blocks = bare.shape[0]
    ratios = []
    for _ in range(RESAMPLES):
        drawn = torch.randint(0, blocks, (blocks,), generator=generator)
        ratios.append(managed[drawn].median() / bare[drawn].median())
    edge = (1 - CONFIDENCE) / 2
    low, high = torch.stack(ratios).quantile(torch.tensor([edge, 1 - edge])).tolist()
    return low, high


def _result(trials: int, bare: torch.Tensor, managed: torch.Tensor) -> Result:
    ratio = float(managed.median() / bare.median())
    low, high = interval(bare, managed)
    plain = tuple(bare.flatten().tolist())
    ours = tuple(managed.flatten().tolist())
    differences = (managed.median(dim=1).values - bare.median(dim=1).values) * 1e6
    return Result(
        name="overhead",
        title="In-process: cost of a step without faults",
        command=f"python -m tests.benchmarks.overhead --trials {trials}",
        method=METHOD,
        series=(
            Series(name="bare DDP, per step", values=tuple(t * 1000 for t in plain), unit="ms"),
            Series(name="elasticd.run, per step", values=tuple(t * 1000 for t in ours), unit="ms"),
            Series(
                name="difference of a block's medians",
                values=tuple(differences.tolist()),
                unit="us",
            ),
        ),
        figures=(
            Figure(
                name="cost of a step, ratio of medians",
                value=(ratio - 1) * 100,
                unit="%",
                target=1.0,
            ),
            Figure(name="95 % interval, low", value=(low - 1) * 100, unit="%"),
            Figure(name="95 % interval, high", value=(high - 1) * 100, unit="%"),
            Figure(name="paired steps", value=len(ours), unit=""),
        ),
    )


METHOD = (
    (
        "Two ranks on this machine, Gloo, DDP of 4 times Linear, BatchNorm and ReLU (width 320), "
        "Adam, StepLR, batches of 64 a rank from 32,768 rows in memory; one thread of torch. It "
        "computes without a wait, so that nothing hides a cost. Bare: `init_process_group`, "
        "DataLoader with DistributedSampler. elasticd: `elasticd run --nproc-per-node 2`, "
        "State, Loader and commit(loss=loss), the agent, its etcd and the beating beside it."
    ),
    (
        f"All four processes live all the time; the pairs take turns in blocks of {BLOCK} steps, "
        f"in the order a b, b a. The first {WARM_UP} steps of a block and the first "
        f"{FIRST_BLOCKS} blocks do not count. A step is from before its batch is asked for until "
        "after the commit, of the slower rank."
    ),
    (
        f"The interval is from {RESAMPLES} bootstrap samples of whole blocks, both pairs' "
        "together. The agent of elasticd runs also while the bare pair trains; it is idle then "
        "(about 0.1 % of a core, `agent_cost`), and what it costs is in both."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

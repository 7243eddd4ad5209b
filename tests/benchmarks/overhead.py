"""What a step costs under `elasticd.run`, beside bare DDP, when nothing fails.

Two pairs of processes train the same: two ranks under a plain process group, two under `elasticd
run`. Only one pair trains at a time: they take turns in blocks of steps, so that a slow second of
the machine hits both. The parts of the cost, in microseconds, are in `commit_cost`.
"""

import contextlib
import dataclasses
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from elasticd.store.private_etcd.embedded import free_port
from tests.benchmarks.bench import own_environ, start, workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commits
from tests.benchmarks.inprocess_site import InProcessRun
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["interval", "measure", "paired_steps", "with_figures"]

TRIALS = 10_000
"""Paired steps."""
LAUNCHES = 12
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

    def receive(self) -> list[float]:
        text = self.file.readline()
        if not text:
            raise RuntimeError("A process of the benchmark ended; see its log (BENCH_KEEP=1).")
        return [float(word) for word in text.split()]


def measure(trials: int) -> Result:
    """Let both pairs take turns."""
    bare, managed = paired_steps(trials)
    about = Result(
        name="overhead",
        title="In-process: cost of a step without faults",
        command=f"python -m tests.benchmarks.overhead --trials {trials}",
        method=METHOD,
    )
    return with_figures(about, bare, managed, target=1.0)


def paired_steps(trials: int, wait_s: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the seconds of each step of the bare pair and of ours: launches, blocks, steps.

    `wait_s` is how long each step of both waits before its backward pass.
    """
    kept = BLOCK - WARM_UP
    launches = min(LAUNCHES, max(1, trials // kept))
    each = [_launch(-(-trials // (kept * launches)), wait_s) for _ in range(launches)]
    bare, managed = (torch.stack([one[arm] for one in each]) for arm in ARMS)
    return bare, managed


def _launch(blocks: int, wait_s: float) -> dict[str, torch.Tensor]:
    """Seconds of each step of both pairs; rows are blocks."""
    took: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    with workplace() as folder, _pairs(folder, wait_s) as pairs:
        for number in range(blocks + FIRST_BLOCKS):
            # A b, b a: neither is always the first after the other.
            for arm in ARMS if number % 2 else reversed(ARMS):
                for rank in range(RANKS):
                    pairs[arm, rank].ask(BLOCK)
                every = [pairs[arm, rank].receive() for rank in range(RANKS)]
                if number >= FIRST_BLOCKS:
                    # The slower rank's: a step is over when all have it.
                    slower = [max(each) for each in zip(*every, strict=True)]
                    took[arm].append(slower[WARM_UP:])
    return {arm: torch.tensor(blocks_of) for arm, blocks_of in took.items()}


@contextlib.contextmanager
def _pairs(folder: Path, wait_s: float) -> Iterator[dict[tuple[str, int], Musician]]:
    """Start both, and wait until all four are there."""
    path = folder / "conductor"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server,
        Commits(folder) as feed,
    ):
        server.bind(str(path))
        server.listen()
        server.settimeout(LIMIT_S)
        env = {"BENCH_CONDUCTOR": str(path), "OMP_NUM_THREADS": "1", "BENCH_WAIT_S": str(wait_s)}
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


def cost(bare: torch.Tensor, managed: torch.Tensor) -> float:
    """The median over the launches of the ratio of a launch's medians, less one."""
    ratios = managed.flatten(1).median(dim=1).values / bare.flatten(1).median(dim=1).values
    return float(ratios.quantile(0.5)) - 1


def interval(bare: torch.Tensor, managed: torch.Tensor) -> tuple[float, float]:
    """Return the bootstrap interval of the cost; launches, blocks of a launch, steps of a block.

    Whole launches are drawn, then whole blocks of them, both pairs' together: steps that follow
    each other are alike, and so are blocks of the same processes.
    """
    generator = torch.Generator().manual_seed(1)
    launches, blocks = bare.shape[:2]
    costs = []
    for _ in range(RESAMPLES):
        launch = torch.randint(0, launches, (launches, 1), generator=generator)
        block = torch.randint(0, blocks, (launches, blocks), generator=generator)
        costs.append(cost(bare[launch, block], managed[launch, block]))
    edge = (1 - CONFIDENCE) / 2
    low, high = torch.tensor(costs).quantile(torch.tensor([edge, 1 - edge])).tolist()
    return low, high


def with_figures(
    about: Result, bare: torch.Tensor, managed: torch.Tensor, *, target: float
) -> Result:
    """Return the result with its series and its figures; `target` is in percent."""
    low, high = interval(bare, managed)
    per_launch = [
        cost(bare[one : one + 1], managed[one : one + 1]) * 100 for one in range(len(bare))
    ]
    plain = tuple(bare.flatten().tolist())
    ours = tuple(managed.flatten().tolist())
    return dataclasses.replace(
        about,
        series=(
            Series(name="bare DDP, per step", values=tuple(t * 1000 for t in plain), unit="ms"),
            Series(name="elasticd.run, per step", values=tuple(t * 1000 for t in ours), unit="ms"),
            Series(name="cost of a step, per launch", values=tuple(per_launch), unit="%"),
        ),
        figures=(
            Figure(
                name="cost of a step, ratio of medians",
                value=cost(bare, managed) * 100,
                unit="%",
                target=target,
            ),
            Figure(name="95 % interval, low", value=low * 100, unit="%"),
            Figure(name="95 % interval, high", value=high * 100, unit="%"),
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
        f"All four processes of a launch live all the time; the pairs take turns in blocks of "
        f"{BLOCK} steps, in the order a b, b a; {LAUNCHES} launches. The first {WARM_UP} steps of "
        f"a block and the first {FIRST_BLOCKS} blocks of a launch do not count. A step is from "
        "before its batch is asked for until after the commit, of the slower rank."
    ),
    (
        "The figure is the median over the launches. The interval is from "
        f"{RESAMPLES} bootstrap samples of whole launches and whole blocks of them, both pairs' "
        "together. The agent of elasticd runs also while the bare pair trains; it is idle then "
        "(about 0.1 % of a core, `agent_cost`), and what it costs is in both."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

"""The rendezvous at 100, 1,000 and 5,000 simulated nodes, as a result with targets.

The work is that of `simulator`, which prints it alone: all nodes form a world, a tenth is lost at
once, the rest goes on; real rules, simulated store, network and time.
"""

from dataclasses import asdict

from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result
from tests.benchmarks.simulator import SIZES
from tests.sim.scale import measure as measure_once
from tests.sim.scale import slope, table

__all__ = ["measure"]

TRIALS = 3
WRITES = 3
EVENTS_RATIO = 1.5
"""Bounded: fifty times the nodes may not make more than half as many events again."""


def measure(trials: int) -> Result:
    """Take the quickest of so many runs of each size."""
    runs = []
    for nodes in SIZES:
        tries = [measure_once(nodes) for _ in range(trials)]
        runs.append(min(tries, key=lambda run: run.cpu_s))
        print(f"{nodes} nodes: {runs[-1].wall_s:.2f} s", flush=True)
    figures = (
        Figure(
            name="etcd writes per member and generation, most",
            value=max(run.writes for run in runs),
            unit="",
            target=WRITES,
        ),
        Figure(
            name=f"events of one agent, {SIZES[-1]:,} nodes / {SIZES[0]:,}",
            value=runs[-1].events / runs[0].events,
            unit="x",
            target=EVENTS_RATIO,
        ),
        Figure(
            name="CPU time ~ nodes^exponent (least squares on both logarithms)",
            value=slope(runs),
            unit="",
            target=1.0,
        ),
        Figure(name=f"wall time, {SIZES[-1]:,} nodes", value=runs[-1].wall_s),
    )
    return Result(
        name="growth",
        title="The rendezvous with many nodes (simulated)",
        command=f"python -m tests.benchmarks.growth --trials {trials}",
        method=(
            "The rules that are shipped, with simulated store, network and time, on one core.",
            f"Of {trials} runs of each size the one with the least CPU time, of one thread.",
        ),
        figures=figures,
        text=table(runs),
        more={"runs": [asdict(run) for run in runs]},
    )


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

"""The rendezvous at 100 to 10,000 simulated nodes, as a result with targets.

The work is that of `simulator`, which prints it alone: all nodes form a world, a tenth is lost at
once, the rest goes on; real rules, simulated store, network and time. The simulator hands records
on as objects, so what it costs to write and to read a world is measured beside it: every node reads
every world whole, which is what bends the curve.
"""

from dataclasses import asdict

from tests.benchmarks.call import run
from tests.benchmarks.report import Figure, Result
from tests.benchmarks.simulator import SIZES
from tests.benchmarks.world_record import WORKERS, fit, measure_record, record_table
from tests.sim.scale import measure as measure_once
from tests.sim.scale import slope, table

__all__ = ["measure"]

TRIALS = 3
WRITES = 3
EVENTS_RATIO = 1.5
"""Bounded: a hundred times the nodes may not make more than half as many events again."""
CAPTION = (
    f"What one change of world costs one node in CPU time, {WORKERS} workers each: the rules, and "
    "the reading of the world."
)
REQUEST_LIMIT_MB = 1.5
"""What etcd takes in one request by default, for the world and what is written with it."""


def measure(trials: int) -> Result:
    """Take the quickest of so many runs of each size."""
    runs = []
    for nodes in SIZES:
        tries = [measure_once(nodes) for _ in range(trials)]
        runs.append(min(tries, key=lambda run: run.cpu_s))
        print(f"{nodes} nodes: {runs[-1].wall_s:.2f} s", flush=True)
    records = [measure_record(nodes) for nodes in SIZES]
    # A generation is a change for each of its nodes: the first world and the one after the loss.
    rules_s = [run.cpu_s / (run.nodes * run.generations) for run in runs]
    whole_s = [rule_s + cost.decode_s for rule_s, cost in zip(rules_s, records, strict=True)]
    fixed_s, per_node_s = fit(list(zip(SIZES, whole_s, strict=True)))
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
            name="CPU time of the rules ~ nodes^exponent (least squares on both logarithms)",
            value=slope(runs),
            unit="",
            target=1.0,
        ),
        Figure(
            name=f"world of {SIZES[-1]:,} nodes x {WORKERS} workers in etcd",
            value=records[-1].value_bytes / 1e6,
            unit="MB",
            target=REQUEST_LIMIT_MB,
        ),
        Figure(
            name=f"a node's change at {SIZES[-1]:,} nodes, rules and reading", value=whole_s[-1]
        ),
        Figure(
            name="nodes from which reading the world costs more than all else",
            value=round(fixed_s / per_node_s),
            unit="",
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
        text="\n\n".join(
            (
                table(runs),
                CAPTION,
                record_table(records, rules_s),
                _in_words(fixed_s, per_node_s),
            )
        ),
        more={
            "runs": [asdict(run) for run in runs],
            "records": [asdict(cost) for cost in records],
        },
    )


def _in_words(fixed_s: float, per_node_s: float) -> str:
    return (
        f"Fit of the last column: {1e3 * fixed_s:.1f} ms + {1e6 * per_node_s:.0f} us for each node "
        f"of the world. It bends at about {fixed_s / per_node_s:,.0f} nodes: below, the rules cost "
        "more, which is near constant for each node; above, the cost is in proportion to the "
        "world, since each node reads it whole."
    )


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

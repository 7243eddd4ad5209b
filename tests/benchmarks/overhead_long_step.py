"""What a step of 50 ms costs under `elasticd.run`, beside bare DDP, when nothing fails.

It is `overhead` with a wait in each step of both pairs, which stands for computation on a device:
the share of what elasticd adds to the thread that trains, where a step takes as long as real ones.
"""

from tests.benchmarks import overhead
from tests.benchmarks.call import run
from tests.benchmarks.report import Result

__all__ = ["measure"]

TRIALS = 2400
"""Paired steps."""
WAIT_S = 0.045


def measure(trials: int) -> Result:
    """Let both pairs take turns."""
    bare, managed = overhead.paired_steps(trials, WAIT_S)
    about = Result(
        name="overhead_long_step",
        title="In-process: cost of a step of 50 ms without faults",
        command=f"python -m tests.benchmarks.overhead_long_step --trials {trials}",
        method=METHOD,
    )
    return overhead.with_figures(about, bare, managed, target=0.2)


METHOD = (
    (
        f"As the section before, with a wait of {WAIT_S * 1000:.0f} ms before the backward pass in "
        "each step of both pairs. What elasticd's other threads do while the script waits costs a "
        "step nothing, as it would where a GPU computes."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

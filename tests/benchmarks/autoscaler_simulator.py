"""The autoscaler against an oracle that knows the curve.

The shipped `decide` lives through curves that are drawn from a seed, four virtual hours each, and
so do the rules of others. The seed is given, or drawn: it is in the title of what is written.
"""

import argparse
import secrets
import statistics
from collections.abc import Sequence
from multiprocessing import get_context
from operator import truediv
from pathlib import Path

from elasticd.autoscale.simulator.run import simulate
from tests.benchmarks.report import Figure, Result, dump, percentile, show, table
from tests.sim.autoscaler.draw import KINDS, scenarios
from tests.sim.autoscaler.oracle import Score, score
from tests.sim.autoscaler.policy import POLICY
from tests.sim.autoscaler.rivals import KNOWING, SCALERS, WAITING

OURS = "elasticd"
METHOD = (
    """Each curve is one job of four virtual hours: linear, saturating, with a cliff, or changing
    once or twice; 4 to 16 nodes at most, which come and go; noise of 0.5 to 5 %, stalls, changes of
    0.3 to 10 s; up to three faults each: metrics that are empty, stale, not a number, huge, or low
    after an outage, and leaders that are killed. Another curve differs by a fifth at each size: a
    change that the job's own size does not show is found only by trying others for ever.""",
    """The oracle knows the curve and is always at the size that is worth most by the policy's own
    wish (rate / n^least_share), and pays for its changes. Steps above the oracle's at a moment
    count for nothing, so that more nodes make up for no mistake.""",
    """The noise and the stalls of the job are in no step of that oracle. So the last two rows are
    what somebody makes who has them and knows the curve: at once, and once one whole window of each
    new curve was measured. What they lack is the price of noise, and of the first window: whoever
    must measure can hardly do better than the last but one.""",
    """Turns are changes of direction after one real change: the start, another curve, or nodes that
    come or go where that changes the oracle's size.""",
)
HEADS = ("scaler", "goodput worst", "p10", "median", "node-hours, median", "turns, most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--trials", type=int, default=100, metavar="N", help="curves")
    parser.add_argument("--seed", type=int, default=None, help="default: drawn")
    parser.add_argument("--alone", action="store_true", help="without the rules of others")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    with get_context("spawn").Pool(given.jobs) as pool:
        names = (OURS, WAITING, KNOWING) if given.alone else tuple(SCALERS)
        work = [(seed, given.trials, number, names) for number in range(given.trials)]
        found = pool.map(_scores, work, chunksize=1)
    result = _result(seed, found)
    show(result)
    if given.json:
        dump([result], given.json)


def _scores(work: tuple[int, int, int, tuple[str, ...]]) -> dict[str, Score]:
    """Let these scalers live through one scenario."""
    seed, count, number, names = work
    scenario = scenarios(seed, count)[number]
    share = POLICY.goodput.least_share if POLICY.goodput is not None else 0.0
    return {
        name: score(scenario, simulate(scenario, SCALERS[name](scenario)), share) for name in names
    }


def _result(seed: int, found: Sequence[dict[str, Score]]) -> Result:
    ours = [each[OURS] for each in found]
    shares = [each.goodput_share for each in ours]
    turns = [each.turns for each in ours]
    ceilings = [each[KNOWING].goodput_share for each in found]
    waiting = [each[WAITING].goodput_share for each in found]
    by_kind = [
        f"{kind}: worst {min(shares[start :: len(KINDS)]):.1%}, "
        f"median {statistics.median(shares[start :: len(KINDS)]):.1%}"
        for start, kind in enumerate(KINDS)
        if shares[start :: len(KINDS)]
    ]
    below = sum(share < 0.95 for share in shares)
    return Result(
        name="autoscaler_simulator",
        title=f"The autoscaler against an oracle, {len(found)} curves of seed {seed}",
        command=f"python -m tests.benchmarks.autoscaler_simulator --seed {seed}",
        method=tuple(" ".join(each.split()) for each in METHOD),
        figures=(
            Figure(
                name="goodput, worst",
                value=100.0 * min(shares),
                unit="% of the oracle's",
                target=95.0,
                is_least=True,
            ),
            Figure(
                name="goodput, median",
                value=100.0 * statistics.median(shares),
                unit="% of the oracle's",
            ),
            Figure(name="curves below 95 %", value=float(below), unit=""),
            Figure(
                name="who knows the curve, in the same noise, worst",
                value=100.0 * min(ceilings),
                unit="% of the oracle's",
            ),
            Figure(
                name="who knows the curve after one window, worst",
                value=100.0 * min(waiting),
                unit="% of the oracle's",
            ),
            Figure(
                name="goodput beside who knows the curve, in the same noise, worst",
                value=100.0 * min(map(truediv, shares, ceilings)),
                unit="%",
            ),
            Figure(
                name="turns after one real change, most",
                value=float(max(turns)),
                unit="",
                target=1.0,
            ),
            Figure(
                name="curves with more than one turn after a real change",
                value=float(sum(each > 1.0 for each in turns)),
                unit="",
            ),
        ),
        notes=tuple(by_kind),
        text=table(HEADS, [_row(name, [each[name] for each in found]) for name in found[0]]),
        more={"seed": seed, "goodput": shares, "turns": turns},
    )


def _row(name: str, scores: Sequence[Score]) -> tuple[str, ...]:
    shares = [each.goodput_share for each in scores]
    return (
        name,
        f"{min(shares):.1%}",
        f"{percentile(shares, 0.1):.1%}",
        f"{statistics.median(shares):.1%}",
        f"{statistics.median(each.node_share for each in scores):.2f} of the oracle's",
        f"{max(each.turns for each in scores):.1f}",
    )


if __name__ == "__main__":
    main()

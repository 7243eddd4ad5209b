"""kill -9 of a worker to the next training step, two nodes with one worker each.

elasticd, torchrun and the floor take turns in blocks: 5 kills under elasticd, 5 floors, 1 kill
under torchrun, each launcher started anew for its block and ended after it. Rank 0 and rank 1 die
in turn. The time ends with the first step of any process that was not there before the kill.
"""

import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from elasticd.records.account.incident import PHASES
from tests.benchmarks.bench import send, workplace
from tests.benchmarks.call import run
from tests.benchmarks.feed import ORDER, Feed, Progress
from tests.benchmarks.floor import Floor
from tests.benchmarks.report import Figure, Result, Series
from tests.benchmarks.site import ElasticdRun, TorchrunSite

__all__ = ["measure"]

BLOCK = 5
"""Kills under elasticd for each one under torchrun."""
TRIALS = 50
LIMIT_S = 90.0
"""A recovery that takes longer does not count as one, and the launcher is started anew."""
START_LIMIT_S = 120.0
STEADY_STEPS = 30
KILL_DELAY_S = (6.0, 7.0)
"""Waited before a kill: failures are hours apart, and elasticd forks the next workers when the
start of the last ones has settled. At random, since torchrun looks at its workers every 0.1 s."""
TORCHRUN_CONF = "last_call_timeout=1"


@dataclass(slots=True)
class Taken:
    """The trials of one launcher."""

    values: list[float] = field(default_factory=list)
    lost: int = 0
    marks: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ORDER})
    """From the kill until the first stepping process came so far."""
    phases: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PHASES})

    def take(self, killed_s: float, first: Progress | None) -> bool:
        if first is None:
            self.lost += 1
            return False
        self.values.append(first.first_s["stepped"] - killed_s)
        for name in ORDER:
            self.marks[name].append(first.first_s[name] - killed_s)
        return True

    def share(self, name: str) -> list[float]:
        """How long the worker took from the mark before to this one."""
        before = ORDER[ORDER.index(name) - 1]
        pairs = zip(self.marks[before], self.marks[name], strict=True)
        return [after_s - before_s for before_s, after_s in pairs]


def measure(trials: int) -> Result:
    """Run all blocks."""
    elasticd, torchrun, floor = Taken(), Taken(), Taken()
    notes: list[str] = []
    rng = random.Random(1)  # only spreads the kills over time
    with workplace() as folder, Feed(folder) as feed, Floor(feed) as parent:
        for block in range(-(-trials // BLOCK)):
            count = min(BLOCK, trials - block * BLOCK)
            run = ElasticdRun(folder, feed, f"recovery-{block}")
            _kill_workers(run, feed, range(count), elasticd, rng, notes)
            for change in run.phases():
                for name in PHASES:
                    elasticd.phases[name].append(change.get(name, 0.0))
            for _ in range(count):
                forked = parent.measure()
                floor.take(*(forked or (0.0, None)))
            peer = TorchrunSite(
                folder, feed, nnodes="2", conf=TORCHRUN_CONF, name="torchrun, tuned"
            )
            _kill_workers(peer, feed, [block % 2], torchrun, rng, notes)
            print(
                f"block {block + 1}: elasticd {_newest(elasticd, count)}, floor"
                f" {_newest(floor, count)}, torchrun {_newest(torchrun, 1)}",
                flush=True,
            )
    return _result(trials, elasticd, torchrun, floor, notes)


def _kill_workers(
    site: ElasticdRun | TorchrunSite,
    feed: Feed,
    ranks: Sequence[int],
    taken: Taken,
    rng: random.Random,
    notes: list[str],
) -> None:
    """Start it, kill one worker after the other, end it."""
    is_up = False
    known = feed.known()
    try:
        for number in ranks:
            if not is_up:
                known = feed.known()
                site.start()
            # Only processes since the last kill or start: all of them are new in restart mode.
            world = feed.wait_steady(2, STEADY_STEPS, START_LIMIT_S, known)
            if world is None:
                raise RuntimeError(f"{site.name} did not train within {START_LIMIT_S:g} s.")
            time.sleep(rng.uniform(*KILL_DELAY_S))
            known = feed.known()
            killed_s = time.monotonic()
            send([world[number % 2].pid], signal.SIGKILL)
            first = feed.wait_first_step(known, LIMIT_S)
            is_up = taken.take(killed_s, first)
            if not is_up:
                notes.append(
                    f"{site.name}: no step within {LIMIT_S:g} s after the kill of rank"
                    f" {number % 2}; it was started anew."
                )
                site.stop()
            elif first is not None and first.world != 2:
                notes.append(f"{site.name}: the first step was in a world of {first.world}.")
    finally:
        site.stop()


def _result(
    trials: int, elasticd: Taken, torchrun: Taken, floor: Taken, notes: list[str]
) -> Result:
    series = [
        Series(name=name, values=tuple(taken.values), lost=taken.lost)
        for name, taken in (
            ("elasticd", elasticd),
            ("torchrun, tuned", torchrun),
            ("floor: fork, Gloo, one step", floor),
        )
    ]
    mine, peer, least = (each.at(0.5) for each in series)
    for name in PHASES:
        values = tuple(elasticd.phases[name])
        series.append(Series(name=f"elasticd why: {name}", values=values))
    for label, taken in (("elasticd", elasticd), ("torchrun", torchrun), ("floor", floor)):
        began = tuple(taken.marks["began"])
        series.append(Series(name=f"{label}: until the new script's first line", values=began))
        for name in ORDER[1:]:
            took = tuple(taken.share(name))
            series.append(Series(name=f"{label}: then until {name}", values=took))
    figures = (
        Figure(name="elasticd, p50", value=mine, target=0.05),
        Figure(name="elasticd, p99", value=series[0].at(0.99)),
        Figure(
            name=f"elasticd recovered, of {trials}",
            value=len(elasticd.values),
            unit="",
            target=trials,
            is_least=True,
        ),
        Figure(name="torchrun, p50", value=peer),
        Figure(
            name="torchrun / elasticd, p50",
            value=peer / mine,
            unit="x",
            target=8,
            is_least=True,
        ),
        Figure(name="elasticd / floor, p50", value=mine / least, unit="x", target=1.2),
    )
    return Result(
        name="recovery",
        title="kill -9 of a worker to the next training step",
        command=f"python -m tests.benchmarks.recovery --trials {trials}",
        method=METHOD,
        series=tuple(series),
        figures=figures,
        notes=tuple(notes),
    )


def _newest(taken: Taken, count: int) -> str:
    return " ".join(f"{value:.3f}" for value in taken.values[-count:]) or "lost"


_TORCHRUN = " ".join(TorchrunSite.command("2", "127.0.0.1:PORT", TORCHRUN_CONF))
METHOD = (
    (
        "Restart mode; two nodes on this machine with one worker each; Gloo, DDP of a 4x4 layer, a "
        "pause of 10 ms in each step so that the script leaves the cores to the launchers."
    ),
    (
        "elasticd: `elasticd run --local-agents 2 --nnodes 2 --max-node-losses -1 step.py`, all "
        "else at its default, the private etcd included (real etcd, without fsync as shipped)."
    ),
    f"torchrun, tuned: twice `{TorchrunSite.FRESH_STORE}=1 {_TORCHRUN} step.py`.",
    (
        f"In turn: {BLOCK} kills under elasticd, as many floors, 1 kill under torchrun, and again; "
        "each launcher is started for its block and ended after it, so they never run together. "
        "Rank 0 and rank 1 are killed in turn, 0.5 to 1.5 s after the script took 30 steps."
    ),
    (
        "The time is from just before the kill to the end of the first optimizer step of any "
        f"process that began after it. Not within {LIMIT_S:g} s: lost, and the launcher is "
        "started anew."
    ),
    (
        "Floor: a parent that has imported torch forks two processes that make a TCPStore and a "
        "Gloo group and take one step; nothing is detected, agreed on or ended."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

"""Sharded state with a snapshot of every step in memory: what that costs, and what a loss costs.

FSDP2 on four ranks without replicas: two agents with two ranks each on this machine, 256 MiB of
state, steps of about 100 ms. The same loop without checkpoints takes turns with it. Each run of the
loop with snapshots ends with SIGKILL of a node: how many committed steps are done again, and how
long is it until the next commit?
"""

import os
import random
import re
import signal
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.bench import ROOT, send, workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commit, Commits
from tests.benchmarks.inprocess_site import InProcessSite
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

TRIALS = 5
SCRIPT = Path(__file__).with_name("shard_loop.py")
STATE_MIB = 256
PAUSE_S = 0.1
RANKS = 4
LEARNING_STEPS = 80
"""The first snapshots of a run are measured by elasticd itself, and do not count here."""
STEPS = 120
LIMIT_S = 90.0
START_LIMIT_S = 150.0
KILL_DELAY_S = (0.0, 0.3)
INTERVAL = re.compile(r"one is taken every (\d+) steps")


@dataclass(slots=True)
class Taken:
    plain: list[float] = field(default_factory=list)
    saving: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    """Of each pair of runs, in per cent of the mean step without snapshots."""
    median_cost: list[float] = field(default_factory=list)
    interval: list[float] = field(default_factory=list)
    redone: list[float] = field(default_factory=list)
    next_s: list[float] = field(default_factory=list)
    copy_s: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def measure(trials: int) -> Result:
    """Let both loops take turns."""
    taken = Taken()
    rng = random.Random(1)  # only spreads the kills over a step
    with workplace() as folder, Commits(folder) as feed:
        for number in range(trials):
            plain_s = _run(folder / f"plain-{number}", feed, (), taken, None)
            url = f"file://{folder / f'saved-{number}'}"
            flags = ("--checkpoint", url, "--checkpoint-every", "1steps")
            own = folder / f"saving-{number}"
            saving_s = _run(own, feed, flags, taken, rng)
            taken.plain += plain_s
            taken.saving += saving_s
            taken.cost.append(100 * (_mean(saving_s) / _mean(plain_s) - 1))
            taken.median_cost.append(100 * (_median(saving_s) / _median(plain_s) - 1))
            print(
                f"step {_mean(plain_s):.3f} s, with snapshots {_mean(saving_s):.3f} s; done again "
                f"{taken.redone[-1]:.0f}, next commit {taken.next_s[-1]:.3f} s",
                flush=True,
            )
    return _result(trials, taken)


def _run(
    folder: Path, feed: Commits, flags: tuple[str, ...], taken: Taken, rng: random.Random | None
) -> list[float]:
    """Seconds of each step of one run; with `rng` it ends with the loss of a node."""
    folder.mkdir()
    since = len(feed.all)
    more = {"BENCH_BALLAST_MIB": str(STATE_MIB), "BENCH_PAUSE_S": str(PAUSE_S)}
    # The script imports from here, and agents may be of another tree than this one's.
    more["PYTHONPATH"] = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    site = InProcessSite(folder, feed, slots=RANKS // 2, more=more, flags=flags, script=SCRIPT)
    site.start()
    try:
        world = feed.wait_steady(RANKS, LEARNING_STEPS + STEPS, START_LIMIT_S)
        if world is None:
            raise RuntimeError(f"The job did not train with {RANKS} ranks in {START_LIMIT_S:g} s.")
        ends = [one.at_s for one in feed.all[since:] if _is_of_first(one)]
        found = [end - begin for begin, end in pairwise(ends)]
        if rng is not None:
            said = "".join(path.read_text() for path in folder.glob("runs/*/gen-*/rank-0.err"))
            taken.said += [line for line in said.splitlines() if "does not fit" in line][-1:]
            taken.interval.append(float((INTERVAL.findall(said) or ["1"])[-1]))
            time.sleep(rng.uniform(*KILL_DELAY_S))
            _lose(site, feed, world, taken)
        return found[LEARNING_STEPS : LEARNING_STEPS + STEPS]
    finally:
        site.stop()


def _is_of_first(one: Commit) -> bool:
    return one.name == "stepped" and one.rank == 0 and one.world == RANKS


def _lose(site: InProcessSite, feed: Commits, world: dict[int, Commit], taken: Taken) -> None:
    """SIGKILL the node of rank 0, or the other, in turn."""
    victim = site.node_of(world[0].pid if len(taken.next_s) % 2 else world[RANKS - 1].pid)
    generation = world[0].generation
    since = len(feed.all)
    pids = site.pids(victim)
    killed_s = time.monotonic()
    send(pids, signal.SIGKILL)
    first = feed.wait_for(
        lambda one: one.name == "stepped" and one.generation > generation, since, LIMIT_S
    )
    if first is None:
        raise RuntimeError(f"No step after the loss of a node within {LIMIT_S:g} s.")
    of_world = {one.pid for one in world.values()}
    last = max(one.step for one in feed.all if one.pid in of_world and one.generation == generation)
    taken.next_s.append(first.at_s - killed_s)
    taken.redone.append(float(last - first.step + 1))
    time.sleep(0.5)  # The agent writes down what the change took.
    changes = site.changes()
    taken.copy_s += [changes[0]["phases_s"].get("copy", 0.0)] if changes else []


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _result(trials: int, taken: Taken) -> Result:
    plain = Series(name="a step without checkpoints", values=tuple(taken.plain))
    saving = Series(name="a step with snapshots", values=tuple(taken.saving))
    cost = Series(name="cost, of the mean step", values=tuple(taken.cost), unit="%")
    median = Series(name="cost, of the median step", values=tuple(taken.median_cost), unit="%")
    interval = Series(name="the interval that elasticd took", values=tuple(taken.interval),
                      unit="steps")  # fmt: skip
    redone = Series(name="committed steps done again", values=tuple(taken.redone), unit="steps")
    following = Series(name="SIGKILL of the node to the next commit", values=tuple(taken.next_s))
    copy = Series(name="why: copy (the script's builders, the restore)", values=tuple(taken.copy_s))
    return Result(
        name="every_step",
        title=f"Sharded state, {STATE_MIB} MiB: a snapshot of every step in memory",
        command=f"python -m tests.benchmarks.every_step --trials {trials}",
        method=METHOD,
        series=(plain, saving, cost, median, interval, redone, following, copy),
        figures=(
            Figure(name="cost of a step, p50 of the runs", value=cost.at(0.5), unit="%",
                   target=5.0),
            Figure(name="interval, p50", value=interval.at(0.5), unit="steps", target=1.0),
            Figure(name="committed steps done again, max", value=redone.at(1.0), unit="steps",
                   target=1.0),
            Figure(name="SIGKILL of the node to the next commit, p50", value=following.at(0.5),
                   target=0.5),
        ),
        notes=tuple(taken.said[-1:]),
    )  # fmt: skip


METHOD = (
    (
        "FSDP2 without replicas under `elasticd.run`: two daemons with two slots each, `elasticd "
        "run --etcd URL --nnodes 1:2 --nproc-per-node 2 --checkpoint FOLDER --checkpoint-every "
        f"1steps shard_loop.py`; {STATE_MIB} MiB of sharded parameters that the optimizer owns "
        f"and no gradient reaches, beside a small model that trains. A step waits {PAUSE_S:g} s, "
        "which stands for its computation. Without checkpoints: the same without the two flags."
    ),
    (
        f"Each run is started anew; the first {LEARNING_STEPS} steps do not count, since elasticd "
        f"measures its own first snapshots in them; then {STEPS} steps of rank 0 are timed."
    ),
    (
        "Then SIGKILL goes to the agent of a node and to all below it, its keeper too; the node of "
        "rank 0 and the other one are lost in turn. Done again: the newest step that any rank "
        "committed, less the step from which the survivors go on."
    ),
    (
        "Copies, checksums and both ends of the connection between the keepers share the cores of "
        "one machine with the four ranks; on two machines each has its own."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

"""Goodput under a storm of faults, on a step that waits rather than computes.

Two daemons with two workers each, one job; every so often a random fault: mostly the kill of a
worker, sometimes SIGSTOP of one, sometimes the kill of a whole node, which is started again at
once. What counts is what the processes that were alive could have done meanwhile.
"""

import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.bench import send, workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commit, Commits
from tests.benchmarks.inprocess_site import InProcessSite
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["goodput", "measure"]

TRIALS = 60
"""Seconds of the shortest storm; those with rarer faults are 1.5 and 2 times as long."""
STORMS = ((30.0, 2.0, 0.98), (5.0, 1.5, 0.95), (1.0, 1.0, 0.75))
"""Seconds from fault to fault, how many times TRIALS seconds long, and the least share."""
NODES, SLOTS = 2, 2
WORKERS = NODES * SLOTS
PAUSE_S = 0.02
KINDS = ("kill", "kill", "kill", "kill", "kill", "kill", "kill", "kill", "stop", "node")
"""One of these at random."""
CALM_S = 8.0
"""Without faults, before and after each storm: what is a full throughput."""
START_LIMIT_S = 120.0
END_LIMIT_S = 90.0
STEADY_STEPS = 20


@dataclass(slots=True)
class Storm:
    """What happened in one."""

    every_s: float
    target: float
    began_s: float = 0.0
    ended_s: float = 0.0
    calm_rates: tuple[float, float] = (0.0, 0.0)
    """Steps a second without faults, before and after."""
    calm_steps_per_s: float = 0.0
    faults: list[tuple[float, str, tuple[int, ...]]] = field(default_factory=list)
    """When, what, and the workers that it took."""
    skipped: int = 0
    is_whole_again: bool = False
    commits: list[Commit] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)


def measure(trials: int) -> Result:
    """Let one storm after the other pass."""
    storms = []
    with workplace() as folder, Commits(folder) as feed:
        for number, (every_s, times, target) in enumerate(STORMS):
            storm = Storm(every_s, target)
            own = folder / f"storm-{number}"
            own.mkdir()
            more = {"BENCH_PAUSE_S": str(PAUSE_S)}
            site = InProcessSite(own, feed, nodes=NODES, slots=SLOTS, more=more)
            since, dead = len(feed.all), {each.pid for each in feed.all}
            site.start()
            try:
                # A storm must have room for three faults at least.
                length_s = max(trials * times, 3 * every_s)
                _rage(site, feed, storm, dead, length_s, random.Random(number))
            finally:
                site.stop()
            storm.commits = feed.all[since:]
            storms.append(storm)
            share, plain = goodput(storm)
            print(f"every {every_s:g} s: {share:.4f}, steps alone {plain:.4f}", flush=True)
    return _result(trials, storms)


def _rage(
    site: InProcessSite,
    feed: Commits,
    storm: Storm,
    dead: set[int],
    length_s: float,
    rng: random.Random,
) -> None:
    if feed.wait_steady(WORKERS, STEADY_STEPS, START_LIMIT_S, dead) is None:
        raise RuntimeError(f"The job was not at full size within {START_LIMIT_S:g} s.")
    before = _calm(feed)
    storm.began_s = time.monotonic()
    due_s = storm.began_s
    while (due_s := due_s + storm.every_s) <= storm.began_s + length_s:
        # The first comes after half a time, so that each has its time to be repaired.
        time.sleep(max(0.0, due_s - storm.every_s / 2 - time.monotonic()))
        _strike(site, feed, storm, dead, rng)
    time.sleep(max(0.0, storm.began_s + length_s - time.monotonic()))
    storm.ended_s = time.monotonic()
    storm.is_whole_again = feed.wait_steady(WORKERS, STEADY_STEPS, END_LIMIT_S, dead) is not None
    after = _calm(feed)
    storm.calm_rates = (before, after)
    storm.calm_steps_per_s = (before + after) / 2
    storm.changes = site.changes()


def _calm(feed: Commits) -> float:
    """Steps a second while nothing fails."""
    from_s, step = time.monotonic(), _newest(feed)
    time.sleep(CALM_S)
    return (_newest(feed) - step) / (time.monotonic() - from_s)


def _strike(
    site: InProcessSite, feed: Commits, storm: Storm, dead: set[int], rng: random.Random
) -> None:
    """One fault; none if it would leave nobody who has the state."""
    kind = rng.choice(KINDS)
    alive = [each for each in feed.world().values() if each.pid not in dead]
    if not alive:
        storm.skipped += 1
        return
    one = rng.choice(sorted(alive, key=lambda each: each.rank))
    node = site.node_of(one.pid) if kind == "node" else -1
    pids = site.pids(node) if kind == "node" else [one.pid]
    taken = {each.pid for each in feed.all if each.pid in pids}
    if not {each.pid for each in alive} - taken:
        storm.skipped += 1
        return
    at_s = time.monotonic()
    send(pids, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
    dead |= taken
    storm.faults.append((at_s, kind, tuple(taken)))
    if kind == "node":
        site.revive(node)


def goodput(storm: Storm) -> tuple[float, float]:
    """Return the share of what the live could have done, and the share of steps alone."""
    rate = storm.calm_steps_per_s
    gone_s = {pid: at_s for at_s, _, pids in storm.faults for pid in pids}
    ready_s: dict[int, float] = {}
    for one in storm.commits:
        ready_s.setdefault(one.pid, one.at_s)
    capacity_s = 0.0
    for pid, from_s in ready_s.items():
        to_s = gone_s.get(pid, storm.ended_s)
        capacity_s += max(0.0, min(to_s, storm.ended_s) - max(from_s, storm.began_s))
    worlds: dict[int, int] = {}
    for one in storm.commits:
        if one.name == "stepped" and storm.began_s <= one.at_s < storm.ended_s:
            worlds[one.step] = one.world
    done = sum(worlds.values())
    length_s = storm.ended_s - storm.began_s
    return done / (rate * capacity_s), len(worlds) / (rate * length_s)


def _newest(feed: Commits) -> int:
    return max(each.step for each in feed.world().values())


def _pauses(storm: Storm) -> list[float]:
    """From each fault to the next step of a newer world."""
    found = []
    steps = [one for one in storm.commits if one.name == "stepped"]
    for at_s, _, pids in storm.faults:
        before = max((one.generation for one in steps if one.at_s <= at_s), default=0)
        after = (
            one.at_s - at_s
            for one in steps
            if one.at_s > at_s and one.generation > before and one.pid not in pids
        )
        if (took_s := next(after, None)) is not None:
            found.append(took_s)
    return found


def _story(storm: Storm) -> dict[str, Any]:
    """Faults, and each world's first step, in seconds of the storm: to explain a low share."""
    worlds: dict[int, tuple[float, int]] = {}
    for one in storm.commits:
        if one.name == "stepped":
            worlds.setdefault(one.generation, (round(one.at_s - storm.began_s, 3), one.world))
    return {
        "faults": [[round(at_s - storm.began_s, 3), kind] for at_s, kind, _ in storm.faults],
        "worlds": [[generation, *first] for generation, first in worlds.items()],
        "reasons": [[change["generation"], change["reason"]] for change in storm.changes],
    }


def _result(trials: int, storms: Sequence[Storm]) -> Result:
    figures, series, notes = [], [], []
    for storm in storms:
        share, plain = goodput(storm)
        name = f"a fault every {storm.every_s:g} s"
        figures.append(Figure(name=name, value=share, unit="", target=storm.target, is_least=True))
        figures.append(Figure(name=f"{name}: steps alone", value=plain, unit=""))
        series.append(Series(name=f"{name}: fault to the next step", values=tuple(_pauses(storm))))
        kinds = [kind for _, kind, _ in storm.faults]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("kill", "stop", "node"))
        lost = sum(int(change["lost_steps"]) for change in storm.changes)
        again = "came back" if storm.is_whole_again else "did NOT come back"
        notes.append(
            f"{name}: {storm.ended_s - storm.began_s:.0f} s, {len(kinds)} faults ({counts}), "
            f"{storm.skipped} left out because nobody with the state would have been left; "
            f"{storm.calm_rates[0]:.1f} and {storm.calm_rates[1]:.1f} steps a second without "
            f"faults (before, after); lost steps, as why says: {lost}; the job {again} to full "
            "size."
        )
    return Result(
        name="storm",
        title="In-process: goodput under storm",
        command=f"python -m tests.benchmarks.storm --trials {trials}",
        method=METHOD,
        series=tuple(series),
        figures=tuple(figures),
        notes=tuple(notes),
        more={f"{storm.every_s:g}": _story(storm) for storm in storms},
    )


METHOD = (
    (
        f"{NODES} daemons `elasticd agent --slots {SLOTS} --lease-ttl 2` on one etcd, a job of "
        f"`loop.py` with a wait of {PAUSE_S * 1000:g} ms in each step. Faults at random: 8 of 10 "
        "SIGKILL of a worker, 1 of 10 SIGSTOP of a worker, 1 of 10 SIGKILL of a node (agent, pool "
        "and workers), which is started again at once."
    ),
    (
        "Goodput: the sum over committed steps of the size of the world that made them, divided "
        "by the steps a second without faults times the integral over time of the number of live "
        "workers. That rate is measured at full size, 8 s before and 8 s after each storm (mean). "
        "A worker is live from when it is ready to train (its script calls elasticd.run: what it "
        "waits to be let in counts against us) until the signal that takes it. Time in which a "
        "replacement starts (Python, the script's own imports) is not live time; the time in which "
        "the others stand still is. A step that was committed twice counts once."
    ),
    (
        "Steps alone: committed steps, divided by that rate times the length of the storm. A step "
        "that waits takes as long in any world, so this is the share of time in which the job "
        "trained at all."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

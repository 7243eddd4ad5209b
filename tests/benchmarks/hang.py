"""A worker that freezes, and a node that falls silent, to the survivors' next committed step.

SIGSTOP closes no connection and refuses nothing: only what is missing tells. One worker of four is
stopped on one machine; then, on two daemons with two workers each, agent, pool and workers of one
node at once.
"""

import random
import signal
import time
from dataclasses import dataclass, field

from tests.benchmarks.bench import send, workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commit, Commits
from tests.benchmarks.inprocess_site import InProcessRun, InProcessSite
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

TRIALS = 12
"""Of each kind."""
WORKERS = 4
NODES, SLOTS = 2, 2
TTL_S = 2.0
LIMIT_S = 60.0
START_LIMIT_S = 120.0
STEADY_STEPS = 20
FAULT_DELAY_S = (0.1, 1.2)
"""Waited before, at random: heartbeats and leases have a phase."""


@dataclass(slots=True)
class Taken:
    values: list[float] = field(default_factory=list)
    lost: int = 0


def measure(trials: int) -> Result:
    """Freeze workers, then nodes."""
    worker, node = Taken(), Taken()
    rng = random.Random(1)  # only spreads the faults over time
    with workplace() as folder, Commits(folder) as feed:
        run = InProcessRun(folder, feed, "hang", workers=WORKERS)
        run.start()
        try:
            dead: set[int] = set()
            for number in range(trials):
                world = _steady(feed, dead, rng)
                victim = world[number % WORKERS]
                _stop([victim.pid], [victim], feed, dead, worker)
                print(f"worker: {worker.values[-1:]}", flush=True)
            changes = run.changes()
        finally:
            run.stop()
        dead |= {each.pid for each in feed.all}
        site = InProcessSite(folder, feed, nodes=NODES, slots=SLOTS, lease_ttl_s=TTL_S)
        site.start()
        try:
            for number in range(trials):
                world = _steady(feed, dead, rng)
                lost = site.node_of(world[0 if number % 2 else WORKERS - 1].pid)
                pids = site.pids(lost)
                victims = [each for each in world.values() if each.pid in pids]
                _stop(pids, victims, feed, dead, node)
                print(f"node: {node.values[-1:]}", flush=True)
                site.revive(lost)
        finally:
            site.stop()
    detect = [change["phases_s"].get("detect", 0.0) for change in changes if change["culprit"]]
    return _result(trials, worker, node, detect)


def _steady(feed: Commits, dead: set[int], rng: random.Random) -> dict[int, Commit]:
    world = feed.wait_steady(WORKERS, STEADY_STEPS, START_LIMIT_S, dead)
    if world is None:
        raise RuntimeError(f"The job was not at full size within {START_LIMIT_S:g} s.")
    time.sleep(rng.uniform(*FAULT_DELAY_S))
    return {**world, **feed.world()}


def _stop(
    pids: list[int], victims: list[Commit], feed: Commits, dead: set[int], taken: Taken
) -> None:
    """Stop these processes, and wait for a step of a newer world."""
    dead |= {victim.pid for victim in victims}
    generation = victims[0].generation
    since = len(feed.all)
    stopped_s = time.monotonic()
    # Workers last: a worker that is stopped alone would be an agent's to tell.
    send(pids, signal.SIGSTOP)
    first = feed.wait_for(
        lambda one: one.name == "stepped" and one.pid not in dead and one.generation > generation,
        since,
        LIMIT_S,
    )
    if first is None:
        taken.lost += 1
        raise RuntimeError(f"No step within {LIMIT_S:g} s after SIGSTOP.")
    taken.values.append(first.at_s - stopped_s)


def _result(trials: int, worker: Taken, node: Taken, detect: list[float]) -> Result:
    frozen = Series(name="SIGSTOP of a worker", values=tuple(worker.values))
    silent = Series(name=f"SIGSTOP of a node, TTL {TTL_S:g} s", values=tuple(node.values))
    return Result(
        name="hang",
        title="In-process: silence to the survivors' next committed step",
        command=f"python -m tests.benchmarks.hang --trials {trials}",
        method=METHOD,
        series=(
            frozen,
            Series(name="SIGSTOP of a worker, why: detect", values=tuple(detect)),
            silent,
        ),
        figures=(
            Figure(name="SIGSTOP of a worker, max", value=frozen.at(1.0), target=2.0),
            Figure(name="silent node, p50", value=silent.at(0.5), target=TTL_S + 0.3),
            Figure(name="silent node, p99", value=silent.at(0.99), target=TTL_S + 0.7),
        ),
    )


METHOD = (
    (
        "Worker: `elasticd run --nproc-per-node 4 --max-node-losses -1 loop.py` (a wait of 10 ms "
        "in each step); ranks 0 to 3 are stopped in turn, and the agent starts another."
    ),
    (
        f"Node: {NODES} daemons `elasticd agent --slots {SLOTS} --lease-ttl {TTL_S:g}`, an etcd "
        "(real, without fsync) on neither; SIGSTOP to the agent, its pool and its workers, agent "
        "first. The node with rank 0 and the other one in turn; it is killed and started anew "
        "after the trial."
    ),
    (
        "From just before SIGSTOP to the first step that a survivor commits in a newer world. "
        "Each begins 0.1 to 1.2 s after all four took 20 steps in one world."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

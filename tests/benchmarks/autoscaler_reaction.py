"""How soon a job has the size that an autoscaler wishes for.

Three daemons with one worker each, an in-process job: the autoscaler's wish is written to etcd, for
three nodes and for one in turn, and the time goes until the first commit at that size.
"""

import os
import time
from dataclasses import dataclass, field

from tests.benchmarks.bench import workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commits
from tests.benchmarks.inprocess_site import InProcessSite
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

TRIALS = 20
"""Of each direction."""
NODES = 3
START_LIMIT_S, LIMIT_S = 120.0, 60.0
STEADY_STEPS = 30
POLL_S = 0.01


@dataclass(slots=True)
class Taken:
    """Of one direction."""

    reacted: list[float] = field(default_factory=list)
    """Wish written to the first commit at that size."""
    stall: list[float] = field(default_factory=list)
    """The last commit at the size before, to that one."""
    lost: int = 0


def measure(trials: int) -> Result:
    """Change the size of a job again and again."""
    load = os.getloadavg()[0]
    up, down = Taken(), Taken()
    with workplace() as folder, Commits(folder) as feed:
        site = InProcessSite(folder, feed, nodes=NODES, slots=1)
        site.start()
        try:
            for _ in range(trials):
                _resize(site, feed, NODES, 1, down)
                _resize(site, feed, 1, NODES, up)
            changes = site.changes()
        finally:
            site.stop()
        again = _committed_twice(feed)
    told = max((int(change["lost_steps"]) for change in changes), default=0)
    series = (
        Series(name="1 to 3 nodes: first commit", values=tuple(up.reacted), lost=up.lost),
        Series(name="1 to 3 nodes: without a step", values=tuple(up.stall)),
        Series(name="3 nodes to 1: first commit", values=tuple(down.reacted), lost=down.lost),
        Series(name="3 nodes to 1: without a step", values=tuple(down.stall)),
    )
    figures = (
        Figure(
            name="wish to the first commit at 3 nodes, max",
            value=float("nan") if up.lost else max(up.reacted),
            target=1.0,
        ),
        Figure(
            name="wish to the first commit at 1 node, max",
            value=float("nan") if down.lost else max(down.reacted),
            target=1.0,
        ),
        Figure(name="steps committed twice", value=again, unit="", target=0),
        Figure(name="lost steps, as elasticd why says, most", value=told, unit="", target=0),
    )
    return Result(
        name="autoscaler_reaction",
        title="The autoscaler: from its wish to the size",
        command=f"python -m tests.benchmarks.autoscaler_reaction --trials {trials}",
        method=METHOD,
        series=series,
        figures=figures,
        notes=(f"Load average when it began: {load:.1f}.",),
    )


def _resize(site: InProcessSite, feed: Commits, before: int, after: int, taken: Taken) -> None:
    steady = feed.wait_steady(before, STEADY_STEPS, START_LIMIT_S)
    if steady is None:
        raise RuntimeError(f"The job was not on {before} nodes within {START_LIMIT_S:g} s.")
    limit_s = time.monotonic() + START_LIMIT_S
    while site.ready() < NODES:
        if time.monotonic() > limit_s:
            raise RuntimeError("The nodes that stand by were not ready.")
        time.sleep(POLL_S)
    generation = max(one.generation for one in steady.values())
    since = len(feed.all)
    site.want(after)
    written_s = time.monotonic()
    first = feed.wait_for(
        lambda one: one.name == "stepped" and one.generation > generation and one.world == after,
        since,
        LIMIT_S,
    )
    if first is None:
        taken.lost += 1
        return
    last_s = max(
        one.at_s for one in feed.all if one.name == "stepped" and one.generation == generation
    )
    taken.reacted.append(first.at_s - written_s)
    taken.stall.append(first.at_s - last_s)
    print(f"{before} to {after}: {taken.reacted[-1]:.3f} s", flush=True)


def _committed_twice(feed: Commits) -> int:
    """How many steps one process committed in one generation and again in a later one."""
    seen: set[tuple[int, int]] = set()
    again = 0
    for one in feed.all:
        if one.name == "stepped":
            again += (one.pid, one.step) in seen
            seen.add((one.pid, one.step))
    return again


METHOD = (
    (
        f"{NODES} daemons `elasticd agent --slots 1 --lease-ttl 2` on one etcd, a job of `loop.py` "
        "(a wait of 10 ms in each step). The wish is written as the autoscaler writes it, "
        f"{STEADY_STEPS} steps after the change before, once the nodes that stand by are ready."
    ),
    (
        "First commit: from etcd's answer to the wish's transaction until the first rank of a "
        "world of that size has committed. Committed twice: the same process tells of the same "
        "step in two generations."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

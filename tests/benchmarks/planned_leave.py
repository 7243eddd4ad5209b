"""A node leaves on purpose: notice to its workers' end, and what the job lost by it.

Two daemons with two workers each, an in-process job, one of them drained (as `elasticd drain`
does) or sent SIGTERM, in turn; afterwards it comes back. A step is lost if it was committed twice,
or if `elasticd why` says so.
"""

import itertools
import random
import signal
import statistics
import time
from dataclasses import dataclass, field

from tests.benchmarks.bench import send, workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commits
from tests.benchmarks.inprocess_site import InProcessSite, is_alive
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

TRIALS = 10
"""Of each kind."""
KINDS = ("drain", "SIGTERM")
NODES, SLOTS = 2, 2
LIMIT_S = 60.0
START_LIMIT_S = 120.0
STEADY_STEPS = 20
LEAVE_DELAY_S = (0.1, 0.6)
POLL_S = 0.001
ALLOWED_STEPS, ALLOWED_S = 3, 0.1


@dataclass(slots=True)
class Taken:
    gone: list[float] = field(default_factory=list)
    """Notice to the end of the last of the node's workers."""
    left: list[float] = field(default_factory=list)
    """Notice to the last step that its workers committed."""
    stall: list[float] = field(default_factory=list)
    """The others' last step with them, to the first without."""
    steps: list[float] = field(default_factory=list)
    """Committed by the job between the notice and the workers' end."""
    margin: list[float] = field(default_factory=list)
    """`gone`, less what three steps took then."""
    lost: int = 0


def measure(trials: int) -> Result:
    """Take a node away and bring it back, again and again."""
    taken = {kind: Taken() for kind in KINDS}
    rng = random.Random(1)  # only spreads the notices over time
    with workplace() as folder, Commits(folder) as feed:
        site = InProcessSite(folder, feed, nodes=NODES, slots=SLOTS)
        site.start()
        try:
            for number in range(trials * len(KINDS)):
                kind = KINDS[number % len(KINDS)]
                if feed.wait_steady(NODES * SLOTS, STEADY_STEPS, START_LIMIT_S) is None:
                    raise RuntimeError(f"The job was not at full size within {START_LIMIT_S:g} s.")
                time.sleep(rng.uniform(*LEAVE_DELAY_S))
                # Each node in turn, so that the one with rank 0 leaves as often.
                _leave(site, feed, number // len(KINDS) % NODES, kind, taken[kind])
            changes = site.changes()
        finally:
            site.stop()
        again = _committed_twice(feed)
    told = max((int(change["lost_steps"]) for change in changes), default=0)
    notes = [
        f"generation {each['generation']} ({each['reason']}): {each['lost_steps']} lost steps, as"
        " elasticd why says."
        for each in changes
        if each["lost_steps"]
    ]
    return _result(trials, taken, again, told, notes)


def _leave(site: InProcessSite, feed: Commits, node: int, kind: str, taken: Taken) -> None:
    world = feed.world()
    own = set(site.pids(node))
    going = [each.pid for each in world.values() if each.pid in own]
    since = len(feed.all)
    noticed_s = time.monotonic()
    if kind == "drain":
        site.drain(node)
    else:
        send([site.pids(node)[0]], signal.SIGTERM)
    while any(is_alive(pid) for pid in going):
        if time.monotonic() - noticed_s > LIMIT_S:
            taken.lost += 1
            break
        time.sleep(POLL_S)
    gone_s = time.monotonic()
    generation = max(each.generation for each in world.values())
    first = feed.wait_for(
        lambda one: one.name == "stepped" and one.generation > generation, since, LIMIT_S
    )
    if first is None:
        taken.lost += 1
    elif gone_s - noticed_s <= LIMIT_S:
        old = [one for one in feed.all if one.name == "stepped" and one.generation == generation]
        last_s = max(one.at_s for one in old)
        newest = max(one.step for one in old)
        began = max((one.step for one in old if one.at_s <= noticed_s), default=newest)
        taken.gone.append(gone_s - noticed_s)
        taken.left.append(max(one.at_s for one in old if one.pid in going) - noticed_s)
        taken.stall.append(first.at_s - last_s)
        taken.steps.append(newest - began)
        taken.margin.append(gone_s - noticed_s - ALLOWED_STEPS * _step_s(feed, generation))
        print(f"{kind}: gone after {gone_s - noticed_s:.3f} s", flush=True)
    if kind == "drain":
        site.undrain(node)
    else:
        site.revive(node)


def _step_s(feed: Commits, generation: int) -> float:
    """The median of the steps' times in a generation."""
    times = [one.at_s for one in feed.all if one.generation == generation and one.rank == 0]
    return statistics.median(b - a for a, b in itertools.pairwise(times))


def _committed_twice(feed: Commits) -> int:
    """How many steps one process committed in one generation and again in a later one."""
    seen: set[tuple[int, int]] = set()
    again = 0
    for one in feed.all:
        if one.name == "stepped":
            again += (one.pid, one.step) in seen
            seen.add((one.pid, one.step))
    return again


def _result(
    trials: int, taken: dict[str, Taken], again: int, told: int, notes: list[str]
) -> Result:
    series, figures = [], []
    for kind, each in taken.items():
        margin = Series(name=f"{kind}: gone, less {ALLOWED_STEPS} steps", values=tuple(each.margin))
        series += [
            Series(name=f"{kind}: notice to workers gone", values=tuple(each.gone), lost=each.lost),
            Series(name=f"{kind}: notice to their last step", values=tuple(each.left)),
            margin,
            Series(name=f"{kind}: the others' pause between two steps", values=tuple(each.stall)),
            Series(name=f"{kind}: steps committed meanwhile", values=tuple(each.steps), unit=""),
        ]
        worst = float("nan") if each.lost else margin.at(1.0)
        figures.append(
            Figure(name=f"{kind}: gone, less {ALLOWED_STEPS} steps, max", value=worst, target=0.1)
        )
    figures += [
        Figure(name="steps committed twice", value=again, unit="", target=0),
        Figure(name="lost steps, as elasticd why says, most", value=told, unit="", target=0),
    ]
    return Result(
        name="planned_leave",
        title="In-process: planned leave of a node",
        command=f"python -m tests.benchmarks.planned_leave --trials {trials}",
        method=METHOD,
        series=tuple(series),
        figures=tuple(figures),
        notes=tuple(notes),
    )


METHOD = (
    (
        f"{NODES} daemons `elasticd agent --slots {SLOTS} --lease-ttl 2` on one etcd, a job of "
        "`loop.py` (a wait of 10 ms in each step) on both. In turn: a drain, written to etcd as "
        "`elasticd drain` writes it (its own start is not in the time), and SIGTERM to the agent; "
        "each node in turn. It comes back, and the next begins 0.1 to 0.6 s after 20 steps of all."
    ),
    (
        "Gone: the last of its workers has ended (looked for every millisecond). The target is 3 "
        "steps of the generation's median and 0.1 s more, so `gone, less 3 steps` is at most 0.1."
    ),
    (
        "Committed twice: the same process tells of the same step number in two generations. "
        "The joins that bring the node back are in both counts of lost steps."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

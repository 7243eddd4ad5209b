"""kill -9 of one of four workers to the survivors' next committed step, in the in-process mode.

elasticd, torchft, torchrun and the floor take turns in blocks, each launcher started anew for its
block and ended after it. Every rank dies in turn. The time ends with the first step that a process
commits in a world without the dead one; the replacement's time with the first of a full world.
"""

import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elasticd.records.account.incident import PHASES
from tests.benchmarks.bench import send, workplace
from tests.benchmarks.call import run
from tests.benchmarks.commits import Commit, Commits
from tests.benchmarks.inprocess_site import InProcessRun
from tests.benchmarks.peer_site import (
    TORCHFT_TUNED,
    TorchftRun,
    TorchrunRun,
    has_torchft,
)
from tests.benchmarks.reform_floor import ReformFloor
from tests.benchmarks.report import Figure, Result, Series

__all__ = ["measure"]

BLOCK = 40
"""Kills under elasticd, and floors, for PEER_KILLS under each peer."""
PEER_KILLS = 3
TRIALS = 60
WORKERS = 4
LIMIT_S = 90.0
"""A recovery that takes longer does not count as one, and the launcher is started anew."""
FULL_LIMIT_S = 40.0
START_LIMIT_S = 120.0
STEADY_STEPS = 20
KILL_DELAY_S = (0.1, 0.5)
"""Waited before a kill, at random: torchft and torchrun look at their clocks every 0.1 s."""


class Launcher(Protocol):
    """What a kill needs."""

    name: str

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def restart(self, rank: int) -> None: ...


@dataclass(slots=True)
class Taken:
    """The trials of one launcher."""

    name: str
    values: list[float] = field(default_factory=list)
    """From the kill to the survivors' next committed step."""
    full: list[float] = field(default_factory=list)
    """From the kill to the first committed step of a full world."""
    lost: int = 0
    not_full: int = 0
    """Recovered, but not at full size within FULL_LIMIT_S."""
    phases: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PHASES})
    lost_steps: int = 0

    def newest(self, count: int) -> str:
        return " ".join(f"{value:.3f}" for value in self.values[-count:]) or "lost"


def measure(trials: int) -> Result:
    """Run all blocks."""
    mine, torchrun = Taken("elasticd"), Taken("torchrun, tuned")
    torchft = {
        "torchft, defaults": (Taken("torchft, defaults"), ()),
        "torchft, tuned": (Taken("torchft, tuned"), TORCHFT_TUNED),
    }
    formed: list[float] = []
    floor: list[float] = []
    notes = [] if has_torchft() else ["torchft is not installed, so it is left out."]
    rng = random.Random(1)  # only spreads the kills over time
    with workplace() as folder, Commits(folder) as feed, ReformFloor() as parent:
        for block in range(-(-trials // BLOCK)):
            count = min(BLOCK, trials - block * BLOCK)
            few = min(PEER_KILLS, count)
            run = InProcessRun(folder, feed, f"recovery-{block}")
            for changes in _kill_workers(run, feed, range(count), mine, rng):
                _take_phases(changes, mine)
            for _ in range(count):
                formed_s, stepped_s = parent.measure()
                formed.append(formed_s)
                floor.append(stepped_s)
            if has_torchft():
                for taken, flags in torchft.values():
                    peer = TorchftRun(folder, feed, flags, taken.name)
                    _drain(_kill_workers(peer, feed, _ranks(block, few), taken, rng))
            site = TorchrunRun(folder, feed, torchrun.name)
            _drain(_kill_workers(site, feed, _ranks(block, few), torchrun, rng))
            every = [mine, *(taken for taken, _ in torchft.values()), torchrun]
            print(f"block {block + 1}: floor {floor[-1]:.3f}", flush=True)
            for taken in every:
                print(f"  {taken.name} {taken.newest(few)}", flush=True)
    peers = [taken for taken, _ in torchft.values()] if has_torchft() else []
    notes += [
        f"{each.name}: after {each.lost} kills no survivor's step within {LIMIT_S:g} s, after"
        f" {each.not_full} others no full world within {FULL_LIMIT_S:g} s; started anew then."
        for each in (mine, *peers, torchrun)
        if each.lost or each.not_full
    ]
    return _result(trials, mine, [*peers, torchrun], floor, formed, notes)


def _kill_workers(
    site: Launcher,
    feed: Commits,
    ranks: Sequence[int],
    taken: Taken,
    rng: random.Random,
) -> Iterator[list[dict[str, object]]]:
    """Start it, kill one worker after the other, end it; yields what `why` knows before ends."""
    is_up = False
    dead: set[int] = set()
    try:
        for number in ranks:
            if not is_up:
                dead |= {each.pid for each in feed.all}
                site.start()
            world = feed.wait_steady(WORKERS, STEADY_STEPS, START_LIMIT_S, dead)
            if world is None:
                raise RuntimeError(f"{site.name} did not train within {START_LIMIT_S:g} s.")
            time.sleep(rng.uniform(*KILL_DELAY_S))
            victim = feed.world().get(number % WORKERS, world[number % WORKERS])
            is_up = _kill(site, feed, victim, dead, taken)
            if not is_up:
                site.stop()
        if is_up and isinstance(site, InProcessRun):
            yield site.changes()
    finally:
        site.stop()


def _kill(site: Launcher, feed: Commits, victim: Commit, dead: set[int], taken: Taken) -> bool:
    """Kill one; True if the others went on and all are there again."""
    dead.add(victim.pid)
    old = {each.pid for each in feed.world().values()} - {victim.pid}
    since = len(feed.all)
    killed_s = time.monotonic()
    send([victim.pid], signal.SIGKILL)

    def is_next(one: Commit) -> bool:
        # In a world without the dead one: a smaller one, or (torchrun) one of new processes only.
        # A step that was on its way when the kill came, and ended, is in the old world.
        is_smaller = one.world == WORKERS - 1 or one.pid not in old
        is_newer = one.generation > victim.generation or victim.generation == 0
        return one.name == "stepped" and one.pid not in dead and is_smaller and is_newer

    first = feed.wait_for(is_next, since, LIMIT_S)
    if first is None:
        taken.lost += 1
        return False
    taken.values.append(first.at_s - killed_s)
    site.restart(victim.rank)
    full = feed.wait_for(
        lambda one: one.name == "stepped" and one.pid not in dead | old and one.world == WORKERS,
        since,
        FULL_LIMIT_S,
    )
    if full is None:
        taken.not_full += 1
        return False
    taken.full.append(full.at_s - killed_s)
    return True


def _take_phases(changes: list[dict[str, object]], taken: Taken) -> None:
    for change in changes:
        if change["reason"] == "worker_killed":
            phases: dict[str, float] = change["phases_s"]  # type: ignore[assignment]
            for name in PHASES:
                if name in phases:
                    taken.phases[name].append(phases[name])
        taken.lost_steps = max(taken.lost_steps, int(str(change["lost_steps"])))


def _ranks(block: int, count: int) -> list[int]:
    return [block * count + each for each in range(count)]


def _drain(rounds: Iterator[object]) -> None:
    for _ in rounds:
        pass


def _result(
    trials: int,
    mine: Taken,
    peers: list[Taken],
    floor: list[float],
    formed: list[float],
    notes: list[str],
) -> Result:
    first = Series(name="elasticd", values=tuple(mine.values), lost=mine.lost)
    series = [first]
    series += [Series(name=each.name, values=tuple(each.values), lost=each.lost) for each in peers]
    least = Series(
        name="floor: Gloo re-formed by 3 living processes, one step", values=tuple(floor)
    )
    series += [least, Series(name="floor: of that, until the group is there", values=tuple(formed))]
    full = Series(
        name="elasticd: kill to a committed step of 4", values=tuple(mine.full), lost=mine.not_full
    )
    series += [full]
    series += [
        Series(
            name=f"{each.name}: kill to a committed step of 4",
            values=tuple(each.full),
            lost=each.not_full,
        )
        for each in peers
    ]
    series += [
        Series(name=f"elasticd why: {name}", values=tuple(mine.phases[name])) for name in PHASES
    ]
    figures = [
        Figure(name="elasticd, p50", value=first.at(0.5), target=0.06),
        Figure(name="elasticd, p99", value=first.at(0.99), target=0.12),
        Figure(name="elasticd, max", value=first.at(1.0)),
        Figure(
            name=f"elasticd recovered, of {trials}",
            value=len(mine.values),
            unit="",
            target=trials,
            is_least=True,
        ),
        Figure(name="elasticd, most steps that one kill cost", value=mine.lost_steps, unit=""),
    ]
    targets = {"torchft, defaults": 20.0, "torchrun, tuned": 30.0}
    for each, peer in zip(peers, series[1:], strict=False):
        figures.append(
            Figure(
                name=f"{each.name} / elasticd, p50",
                value=peer.at(0.5) / first.at(0.5),
                unit="x",
                target=targets.get(each.name),
                is_least=True,
            )
        )
    figures += [
        Figure(name="elasticd / floor, p50", value=first.at(0.5) / least.at(0.5), unit="x"),
        Figure(name="elasticd back at four workers, p50", value=full.at(0.5), target=1.0),
    ]
    return Result(
        name="inprocess_recovery",
        title="In-process: kill -9 of a worker to the survivors' next committed step",
        command=f"python -m tests.benchmarks.inprocess_recovery --trials {trials}",
        method=METHOD,
        series=tuple(series),
        figures=tuple(figures),
        notes=tuple(notes),
    )


METHOD = (
    (
        "One machine, four workers, Gloo, DDP of two small layers, a wait of 10 ms in each step so "
        "that the script leaves the cores to the launchers. elasticd: `elasticd run "
        "--nproc-per-node 4 --max-node-losses -1 loop.py`, all else at its default."
    ),
    (
        "The time is from just before the kill to the first step that any survivor commits in a "
        "world without the dead one, as the survivor itself tells; a step of the old world that "
        "was on its way and ended does not count. Ranks 0 to 3 die in turn."
    ),
    (
        "torchft 0.2: four replica groups of one worker with its ProcessGroupGloo, one lighthouse "
        "on the same machine; `defaults`: `torchft_lighthouse --min_replicas 1`, which waits 5 s "
        f"for heartbeats of the dead; `tuned`: with {' '.join(TORCHFT_TUNED)}, which leaves out "
        "any replica that is 0.1 s later than the others, dead or not. Its DistributedDataParallel "
        "is not used: when an all-reduce fails, as it does for a kill in the middle of a step, "
        "it ends the survivors by an AssertionError (torchft 0.2.0, ddp.py). A step counts when "
        "torchft says it committed, and the world is its number of participants. The benchmark "
        "starts the dead one anew when the survivors go on: torchft does not do that itself."
    ),
    (
        f"torchrun, tuned: `{' '.join(TorchrunRun.command())} step.py`, with "
        "a fresh store for each round. It starts all four anew, and what is not in a checkpoint "
        "is lost; only the time until any of them takes a step is measured."
    ),
    (
        f"In turn: {BLOCK} kills under elasticd, as many floors, {PEER_KILLS} kills under each "
        f"peer; never two at a time. Not within {LIMIT_S:g} s: lost."
    ),
    (
        "Floor: three living processes, forked once, make a fresh TCPStore and a Gloo group, wrap "
        "the model in DDP and take one step. Nothing is detected, agreed on, aborted or compared, "
        "and the step has no wait of 10 ms."
    ),
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

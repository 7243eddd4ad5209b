"""The loss of a node, and its goodbye, to the survivor's next step.

Four ways, on two nodes with one worker each: SIGKILL of the agent and all below it at once
(loopback answers "refused", so peers can prove the death); SIGSTOP of the same (nothing is closed,
nothing answers: only the lease tells); SIGTERM of the agent; and the first two under torchrun. The
node comes back after each trial, and the next one begins when both train again. The node with rank
0 and the other one are lost in turn, but under torchrun only the one without its store: its loss
ends a torchrun job. torchrun's nodes are started anew for each trial.
"""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.bench import send, workplace
from tests.benchmarks.call import run
from tests.benchmarks.feed import Feed, Progress
from tests.benchmarks.report import Figure, Result, Series
from tests.benchmarks.site import ElasticdSite, Site, TorchrunSite

__all__ = ["measure"]

TRIALS = 10
LIMIT_S = 90.0
START_LIMIT_S = 150.0
STEADY_STEPS = 30
KILL_DELAY_S = (0.5, 2.0)
TTLS_S = (5.0, 2.0)
SLACK_S = 1.0
GOODBYE_S = 1.0
DEFAULT_CONF = ""
TUNED_CONF = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
"""Whole seconds only; less than three missed heartbeats would take a slow moment for a death."""


@dataclass(slots=True, kw_only=True)
class Loss:
    """One way to lose a node, and what was measured."""

    name: str
    signal: signal.Signals
    is_whole: bool
    """All processes of the node, not the agent alone."""
    target_s: float | None = None
    values: list[float] = field(default_factory=list)
    lost: int = 0


@dataclass(slots=True, kw_only=True)
class Case:
    """Losses to be measured on one site, taken in turn."""

    make: Callable[[Path, Feed], Site]
    losses: tuple[tuple[Loss, int], ...]
    """With the number of trials."""
    victims: tuple[int, ...] = (0, 1)
    """Ranks whose node is lost in turn; empty: always the second node."""
    is_kept: bool = True
    """The lost node comes back for the next trial; else all is started anew for it: under torchrun
    the two do not always train again, which would cost a trial that measures something else."""


def measure(trials: int) -> Result:
    """Run all cases, in two rounds, so that elasticd and torchrun take turns."""
    cases = _cases(trials)
    notes: list[str] = []
    rng = random.Random(1)  # only spreads the losses over time
    with workplace() as folder, Feed(folder) as feed:
        for turn in (0, 1):
            for number, case in enumerate(cases):
                # The odd trial of an odd count goes to the first round.
                order = [
                    loss
                    for loss, count in case.losses
                    for _ in range((count + 1) // 2 if turn == 0 else count // 2)
                ]
                own = folder / f"case-{turn}-{number}"
                own.mkdir()
                if order:
                    _lose_nodes(case, case.make(own, feed), feed, order, rng, notes)
    return _result(trials, cases, notes)


def _cases(trials: int) -> list[Case]:
    few = -(-trials // 5)
    cases = []
    for ttl_s in TTLS_S:
        limit_s = ttl_s + SLACK_S
        killed = Loss(
            name=f"elasticd, TTL {ttl_s:g} s: SIGKILL of the node",
            signal=signal.SIGKILL,
            is_whole=True,
            target_s=limit_s,
        )
        silent = Loss(
            name=f"elasticd, TTL {ttl_s:g} s: SIGSTOP of the node (silent)",
            signal=signal.SIGSTOP,
            is_whole=True,
            target_s=limit_s,
        )
        goodbye = Loss(
            name=f"elasticd, TTL {ttl_s:g} s: SIGTERM of the agent (goodbye)",
            signal=signal.SIGTERM,
            is_whole=False,
            target_s=GOODBYE_S,
        )
        cases.append(
            Case(
                make=lambda folder, feed, ttl_s=ttl_s: ElasticdSite(  # type: ignore[misc]
                    folder, feed, lease_ttl_s=ttl_s
                ),
                losses=((killed, trials), (silent, trials), (goodbye, trials)),
            )
        )
        if not any(case.victims == () for case in cases):
            cases.append(_torchrun("tuned", TUNED_CONF, killed=few * 2, silent=1))
    cases.append(_torchrun("defaults", DEFAULT_CONF, killed=few, silent=0))
    return cases


def _torchrun(how: str, conf: str, *, killed: int, silent: int) -> Case:
    def loss(what: str, number: signal.Signals) -> Loss:
        return Loss(name=f"torchrun, {how}: {what}", signal=number, is_whole=True)

    return Case(
        make=lambda folder, feed: TorchrunSite(
            folder,
            feed,
            nnodes="1:2",
            conf=conf,
            name=f"torchrun, {how}",
            has_fresh_stores=conf != DEFAULT_CONF,
        ),
        losses=(
            (loss("SIGKILL of the node", signal.SIGKILL), killed),
            (loss("SIGSTOP of the node (silent)", signal.SIGSTOP), silent),
        ),
        victims=(),
        is_kept=False,
    )


def _lose_nodes(
    case: Case,
    site: Site,
    feed: Feed,
    order: list[Loss],
    rng: random.Random,
    notes: list[str],
) -> None:
    """Start the site, lose and revive a node for each entry of the order, end it."""
    is_up = False
    known = feed.known()
    try:
        for number, loss in enumerate(order):
            if not is_up:
                known = feed.known()
                site.start()
            world = feed.wait_steady(2, STEADY_STEPS, START_LIMIT_S, known)
            if world is None:
                notes.append(f"{site.name}: did not train with both nodes; it was started anew.")
                site.stop()
                is_up = False
                loss.lost += 1
                continue
            time.sleep(rng.uniform(*KILL_DELAY_S))
            rank = case.victims[number % len(case.victims)] if case.victims else None
            node = 1 if rank is None or world[rank].pid in site.pids(1) else 0
            known = feed.known()
            before_s, first = _lose(site, loss, node, feed)
            if first is None:
                loss.lost += 1
                notes.append(f"{loss.name}: no step within {LIMIT_S:g} s; it was started anew.")
                site.stop()
                is_up = False
                continue
            loss.values.append(first.first_s["stepped"] - before_s)
            if first.world != 1:
                notes.append(f"{loss.name}: the first step was in a world of {first.world}.")
            print(f"{loss.name}: {loss.values[-1]:.3f}", flush=True)
            is_up = case.is_kept
            if is_up:
                known = feed.known()
                site.revive(node)
            else:
                site.stop()
    finally:
        site.stop()


def _lose(site: Site, loss: Loss, node: int, feed: Feed) -> tuple[float, Progress | None]:
    """Lose a node and wait for the survivor; return when, and its first step."""
    known = feed.known()
    pids = site.pids(node)
    before_s = time.monotonic()
    send(pids if loss.is_whole else pids[:1], loss.signal)
    return before_s, feed.wait_first_step(known, LIMIT_S)


def _result(trials: int, cases: list[Case], notes: list[str]) -> Result:
    losses = [loss for case in cases for loss, count in case.losses if count]
    figures = []
    for loss in losses:
        series = Series(name=loss.name, values=tuple(loss.values), lost=loss.lost)
        if loss.target_s is not None:
            # The worst of all trials, and none may be lost.
            worst = float("nan") if loss.lost else series.at(1.0)
            figures.append(Figure(name=f"{loss.name}, max", value=worst, target=loss.target_s))
    return Result(
        name="node_loss",
        title="Loss of a node to the survivor's next step",
        command=f"python -m tests.benchmarks.node_loss --trials {trials}",
        method=METHOD,
        series=tuple(
            Series(name=loss.name, values=tuple(loss.values), lost=loss.lost) for loss in losses
        ),
        figures=tuple(figures),
        notes=tuple(notes),
    )


_TORCHRUN = " ".join(TorchrunSite.command("1:2", "127.0.0.1:PORT", TUNED_CONF))
METHOD = (
    (
        "elasticd: an etcd (real, without fsync) that is not on a lost node, two daemons "
        "`elasticd agent --etcd URL --slots 1 --lease-ttl TTL`, and the job submitted with "
        "`elasticd run --etcd URL --nnodes 1:2 --max-node-losses -1 --detach step.py`."
    ),
    (
        "SIGKILL goes to the agent, its pool and its worker at once. Loopback then answers "
        '"connection refused", which is proof of death: the lease need not run out.'
    ),
    (
        "SIGSTOP goes to the same processes: no connection ends, nothing is refused, so the lease "
        "has to run out. They are killed after the trial."
    ),
    "SIGTERM goes to the agent alone, which says goodbye.",
    (
        "The node with rank 0 and the other one are lost in turn; after a trial the agent is "
        "started again (torchrun: both are), and the next trial begins 0.5 to 2 s after both nodes "
        "took 30 steps."
    ),
    (
        f"torchrun, tuned: twice `{TorchrunSite.FRESH_STORE}=1 {_TORCHRUN} step.py`; torchrun, "
        "defaults: the same without that variable and "
        "--rdzv-conf (last call 30 s, heartbeat every 5 s, 3 missed). Only the node without the "
        "c10d store is lost: a torchrun job does not survive the other."
    ),
    f"Not within {LIMIT_S:g} s: lost, and everything is started anew.",
)


if __name__ == "__main__":
    run(__doc__, measure, TRIALS)

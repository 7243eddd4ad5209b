"""The progress of running jobs, as their agents report it: it changes too often for etcd.

Each job is asked again when its answer is ten seconds old, in a thread of a pool: an agent that
does not answer delays no decision.
"""

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from elasticd.control.progress import AskRanks
from elasticd.kube.resource.job_records import ReportedProgress
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import JobName, NodeId
from elasticd.records.member import Node
from elasticd.records.world import World
from elasticd.store.api import StoreSettings
from elasticd.telemetry.log import get_logger

__all__ = ["Measurements", "measured"]

EVERY_S = 10.0
THREADS = 4
SAME_TIME_S = 2.0
"""Two answers whose times of a checkpoint's end differ by no more than this mean the same
checkpoint."""
MOST_STEPS = 2**63
"""A number that Kubernetes takes is smaller."""

log = get_logger()

Ranks = tuple[RankProgress, ...]
Ask = Callable[[World, Mapping[NodeId, Node]], Ranks]


class Measurements:
    """The newest progress of each running job. One thread uses it, until it is closed."""

    def __init__(
        self,
        settings: StoreSettings | None,
        *,
        now_s: Callable[[], float] = time.monotonic,
        asker: Callable[[JobName], Ask] | None = None,
    ) -> None:
        """`settings` are those of etcd, whose certificates the agents' servers use too."""
        self._now_s = now_s
        self._asker = asker or (lambda job: AskRanks(job, settings))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="measure")
        self._asks: dict[JobName, Ask] = {}
        self._asked: dict[JobName, tuple[float, Future[Ranks] | None]] = {}
        self._known: dict[JobName, ReportedProgress] = {}
        self._refused: set[JobName] = set()
        """The jobs whose last answer had numbers that cannot be."""

    def follow(
        self, worlds: Mapping[JobName, World], nodes: Mapping[NodeId, Node]
    ) -> Mapping[JobName, ReportedProgress]:
        """Return the known progress of the jobs that run now, and ask again if it is old."""
        now_s = self._now_s()
        for job in self._asked.keys() - worlds.keys():
            self._forget(job)
        for job, world in worlds.items():
            asked_s, answer = self._asked.get(job, (now_s - EVERY_S, None))
            if answer is not None and answer.done():
                self._take(job, answer)
                answer = None
            if answer is None and now_s >= asked_s + EVERY_S:
                ask = self._asks.setdefault(job, self._asker(job))
                asked_s, answer = now_s, self._threads.submit(ask, world, nodes)
            self._asked[job] = asked_s, answer
        return self._known

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for job in list(self._asked):
            self._forget(job)

    # --- private ------------------------------------------------------------------------------

    def _take(self, job: JobName, answer: "Future[Ranks]") -> None:
        if answer.exception() is not None or not (ranks := answer.result()):
            return
        try:
            self._known[job] = measured(ranks, self._known.get(job), now_unix_s=time.time())
        except ValueError as exc:
            # One job's agent must not stop the operator's look, which is that of all jobs.
            if job not in self._refused:
                log.warning("progress.refused", job=job, why=str(exc))
            self._refused.add(job)
        else:
            self._refused.discard(job)

    def _forget(self, job: JobName) -> None:
        del self._asked[job]
        self._known.pop(job, None)
        self._refused.discard(job)
        ask = self._asks.pop(job, None)
        if isinstance(ask, AskRanks):
            ask.close()


def measured(
    ranks: Ranks, before: ReportedProgress | None, *, now_unix_s: float
) -> ReportedProgress:
    """Read an answer; the rank with the most steps counts, since all ranks step together.

    Raises: ValueError: a number cannot be, such as an age that is no number.
    """
    told = [rank for rank in ranks if rank.step is not None]
    step = max((rank.step for rank in told if rank.step is not None), default=None)
    step_s = max((rank.step_s for rank in told), default=0.0)
    ages = [rank.checkpoint_ago_s for rank in ranks if rank.checkpoint_ago_s is not None]
    rate = 1.0 / step_s if step_s > 0.0 else None
    _check(step, step_s, rate, ages, now_unix_s)
    at = round(now_unix_s - min(ages)) if ages else None
    was = before.checkpoint_unix_s if before is not None else None
    if at is not None and was is not None and abs(at - was) <= SAME_TIME_S:
        at = round(was)
    return ReportedProgress(
        step=step,
        steps_per_second=float(f"{rate:.3g}") if rate is not None else None,
        checkpoint_unix_s=float(at) if at is not None else None,
    )


def _check(
    step: int | None, step_s: float, rate: float | None, ages: list[float], now_unix_s: float
) -> None:
    """Check what an agent said before it becomes a date, or a number in a resource's status."""
    if step is not None and not 0 <= step < MOST_STEPS:
        raise ValueError(f"{str(step)[:20]} is no number of steps.")
    if not math.isfinite(step_s) or (rate is not None and not math.isfinite(rate)):
        raise ValueError(f"{step_s} s is no duration of a step.")
    for age_s in ages:
        if not abs(age_s) <= now_unix_s:  # An age that is no number is not within it either.
            raise ValueError(f"{age_s} s is no age of a checkpoint.")

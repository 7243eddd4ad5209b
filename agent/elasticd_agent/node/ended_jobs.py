"""Removes the records of jobs that ended long ago. Every daemon does so; none is in charge.

An agent that serves one job alone does not: its etcd goes with it, or others care for it.
"""

import random
from collections.abc import Callable, Mapping

from elasticd.control.prune import Counted, count_up
from elasticd.errors import ElasticdError
from elasticd.records.ids import JobName
from elasticd.records.keys import Keys
from elasticd.store.api import Store
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s
from elasticd_agent.loop.effect_thread import EffectThread, later

__all__ = ["EndedJobs"]

LOOK_S = 3600.0
"""One small write an hour for each ended job, by whichever agent is first."""
LOOKS_LEAST = 10
"""Within the time for which records are kept, however short that is."""

log = get_logger()


class EndedJobs:
    """Looks again and again until it is closed, on a thread that nobody else waits for."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        effect_thread: EffectThread,
        keep_s: float,
        *,
        after: Callable[[float, Callable[[], object]], None] = later,
        clock: Callable[[], float] = now_s,
    ) -> None:
        """`keep_s` is the least time for which records stay, in seconds; 0: for ever."""
        self._store, self._keys, self._effect_thread = store, keys, effect_thread
        self._keep_s, self._after, self._clock = keep_s, after, clock
        self._step_s = min(LOOK_S, keep_s / LOOKS_LEAST)
        self._seen: Mapping[JobName, Counted] = {}
        self._is_closed = False

    def open(self) -> None:
        if self._keep_s > 0.0:
            self._prune_soon()

    def close(self) -> None:
        self._is_closed = True

    def _prune_soon(self) -> None:
        # Not all agents at the same moment: all but one of them would have looked in vain.
        self._after(self._step_s * random.uniform(1.0, 1.2), self._send)  # noqa: S311

    def _send(self) -> None:
        if not self._is_closed:
            self._effect_thread.send(self._list_and_prune, self._pruned, self._not_pruned)

    def _list_and_prune(self) -> tuple[JobName, ...]:
        self._seen, removed = count_up(
            self._store,
            self._keys,
            self._seen,
            keep_s=self._keep_s,
            step_s=self._step_s,
            now_s=self._clock(),
        )
        return removed

    def _pruned(self, removed: tuple[JobName, ...]) -> None:
        for job in removed:
            log.info("job.pruned", job=job)
        self._prune_soon()

    def _not_pruned(self, error: ElasticdError) -> None:
        log.warning("job.not_pruned", why=str(error))
        self._prune_soon()

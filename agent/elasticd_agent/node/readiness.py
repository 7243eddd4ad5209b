"""Whether a node that holds its lease is not ready yet: it may wait for the state of jobs.

A job whose workers crash here again and again holds this node back, takes it in and holds it back
again: all of that is one wait, whose time goes on where it stood.

The owner's thread looks; any thread may ask. Nothing here blocks, and no node stays not ready for
ever.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from elasticd.records.ids import JobName
from elasticd_agent.loop.clock import now_s

__all__ = ["LIMIT_S", "Readiness"]

LIMIT_S = 600.0
"""How long a node waits for a state at most, with the start of its workers: as long as an agent has
for its own start from a cold disk. A node whose workers never start would be red for ever."""


@dataclass(frozen=True, slots=True)
class _Wait:
    since_s: float
    """When the state was first missed."""
    limit_s: float
    limited_s: float
    """When that limit began to hold: each has a time of its own, within `LIMIT_S`."""
    paused_s: float | None = None
    """Since when the job has held this node back; None: it does not."""

    def keeps(self, at_s: float) -> bool:
        """Return whether the node is not ready for it at this moment."""
        until_s = min(self.since_s + LIMIT_S, self.limited_s + self.limit_s)
        return self.paused_s is None and at_s < until_s

    def paused(self, at_s: float) -> "_Wait":
        return self if self.paused_s is not None else replace(self, paused_s=at_s)

    def resumed(self, limit_s: float, at_s: float) -> "_Wait":
        """Go on with the wait; the time between does not count. A new limit begins now."""
        away_s = at_s - self.paused_s if self.paused_s is not None else 0.0
        is_same = self.limit_s == limit_s
        limited_s = self.limited_s + away_s if is_same else at_s
        return _Wait(since_s=self.since_s + away_s, limit_s=limit_s, limited_s=limited_s)


class Readiness:
    """Not ready before the first list of jobs was read, since a state may have to be taken over."""

    def __init__(self) -> None:
        self._are_jobs_known, self._began_s = False, now_s()
        self._waits: dict[JobName, _Wait] = {}
        """The jobs whose state is missing here. Replaced and never changed: other threads read
        it."""

    def on_jobs_listed(self) -> None:
        """Take note that every job that there was has been read."""
        self._are_jobs_known = True

    def update(
        self, limits_s: Mapping[JobName, float], held_back: Collection[JobName], at_s: float
    ) -> None:
        """Take in for how long each job served here may keep the node from being ready; 0: not at
        all.

        `held_back`: the jobs whose world leaves this node out for what its workers did: a wait
        for such a job is not over.
        """
        waits = {}
        for job, limit_s in limits_s.items():
            before = self._waits.get(job)
            if limit_s:
                new = _Wait(since_s=at_s, limit_s=limit_s, limited_s=at_s)
                waits[job] = before.resumed(limit_s, at_s) if before is not None else new
            elif before is not None and job in held_back:
                waits[job] = before.paused(at_s)
        self._waits = waits

    @property
    def why_not(self) -> str:
        """Return why this node is not ready, as a sentence; empty if it is."""
        at_s = now_s()
        if not self._are_jobs_known and at_s < self._began_s + LIMIT_S:
            return "This node has not read yet which jobs there are."
        jobs = sorted(job for job, wait in self._waits.items() if wait.keeps(at_s))
        if not jobs:
            return ""
        return f"Job {jobs[0]!r} has its state on other nodes and not yet on this one."

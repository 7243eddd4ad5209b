"""What keeps a node from being ready although it holds its lease: jobs whose state it waits for.

The owner's thread looks; any thread may ask. Nothing here waits, and nobody is red for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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

    @property
    def until_s(self) -> float:
        return min(self.since_s + LIMIT_S, self.limited_s + self.limit_s)


class Readiness:
    """Not ready before the first list of jobs was read, since a state may have to be taken over."""

    def __init__(self) -> None:
        self._are_jobs_known, self._began_s = False, now_s()
        self._waits: dict[JobName, _Wait] = {}
        """The jobs whose state is missing here. Replaced and never changed: other threads read
        it."""

    def know_jobs(self) -> None:
        """Take note that every job that there was has been read."""
        self._are_jobs_known = True

    def look(self, limits_s: Mapping[JobName, float], at_s: float) -> None:
        """Take in for how long each job served here may keep the node from being ready; 0: not at
        all.
        """
        waits = {}
        for job, limit_s in limits_s.items():
            if limit_s:
                before = self._waits.get(job) or _Wait(
                    since_s=at_s, limit_s=limit_s, limited_s=at_s
                )
                is_same = before.limit_s == limit_s
                waits[job] = before if is_same else _Wait(before.since_s, limit_s, at_s)
        self._waits = waits

    @property
    def why_not(self) -> str:
        """Return why this node is not ready, as a sentence; empty if it is."""
        at_s = now_s()
        if not self._are_jobs_known and at_s < self._began_s + LIMIT_S:
            return "This node has not read yet which jobs there are."
        jobs = sorted(job for job, wait in self._waits.items() if at_s < wait.until_s)
        if not jobs:
            return ""
        return f"Job {jobs[0]!r} has its state on other nodes and not yet on this one."

"""The meters of all jobs of this node, also of those that ended a little while ago."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from elasticd.channel.worker import Beat
from elasticd.goodput.cause import TimeCause
from elasticd.records.ids import JobName, Rank
from elasticd.records.job import JobSpec
from elasticd_agent.loop.clock import now_s
from elasticd_agent.metrics.job_meter import JobMeter, JobReading

__all__ = ["ENDED_LIMIT", "KEEP_S", "JobMeters", "Readings"]

KEEP_S = 600.0
"""For so long the series of a job that this node serves no more go on: two scrapes at the least
must see how it ended, and an alert with `for: 5m` must be able to."""
ENDED_LIMIT = 50
"""Jobs that ended and are shown still; of more of them the oldest go first."""


SlotSeconds = Callable[[JobName, float], Mapping[TimeCause, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The readings of a node's meters at one moment."""

    jobs: tuple[JobReading, ...]
    unserved: tuple[JobName, ...]
    """Jobs that are not over and that this node has no part in."""


class JobMeters:
    """Used by the owner's thread alone. `counted` gives a job's slot-seconds by cause."""

    def __init__(
        self, counted: SlotSeconds = lambda job, now_s: {}, now_s: Callable[[], float] = now_s
    ) -> None:
        self._counted, self._now_s = counted, now_s
        self._meters: dict[JobName, JobMeter] = {}
        self._ended_s: dict[JobName, float] = {}
        """In the order in which they ended here."""
        self._active: dict[JobName, None] = {}

    def open(self, spec: JobSpec) -> JobMeter:
        """Return the job's meter: that of an earlier incarnation, or a new one for a new job."""
        meter = self._meters.get(spec.name)
        if meter is None or meter.spec.uid != spec.uid:
            meter = self._meters[spec.name] = JobMeter(spec)
        self._ended_s.pop(spec.name, None)
        meter.serve()
        return meter

    def close(self, meter: JobMeter, *, keeps_workers: bool = False) -> None:
        """Note that nobody here serves the job any more, or for now."""
        meter.rest(keeps_slots=keeps_workers)
        if self._meters.get(meter.job) is meter:
            self._ended_s.pop(meter.job, None)
            self._ended_s[meter.job] = self._now_s()
            self._drop_old()

    def receive(self, job: JobName, rank: Rank, beat: Beat, formed_step: int) -> None:
        """Count what a worker says of its progress; see `JobMeter.receive`."""
        if (meter := self._meters.get(job)) is not None:
            meter.receive(rank, beat, formed_step)

    def add(self, job: JobName, uid: str) -> None:
        """A job is there that is not over, whether this node serves it or not.

        What is shown still of an earlier one of the name ends: two phases of one job make no sense.
        """
        self._active[job] = None
        if job in self._ended_s and self._meters[job].spec.uid != uid:
            del self._ended_s[job], self._meters[job]

    def forget(self, job: JobName) -> None:
        """Drop a job that is over, with everything that waited here for its return."""
        self._active.pop(job, None)
        if (meter := self._meters.get(job)) is not None and job in self._ended_s:
            meter.end()

    def readings(self) -> Readings:
        self._drop_old()
        now_s = self._now_s()
        return Readings(
            jobs=tuple(
                replace(meter.reading(), slot_seconds=dict(self._counted(job, now_s)))
                for job, meter in self._meters.items()
            ),
            unserved=tuple(job for job in self._active if job not in self._meters),
        )

    def _drop_old(self) -> None:
        least_s = self._now_s() - KEEP_S
        for job, ended_s in list(self._ended_s.items()):
            if ended_s <= least_s or len(self._ended_s) > ENDED_LIMIT:
                del self._ended_s[job], self._meters[job]

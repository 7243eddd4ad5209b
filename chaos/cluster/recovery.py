"""What became of each fault, by one look after the other. Pure.

The status of an ElasticJob is written when its phase changes and every ten seconds otherwise, so a
status that is read after a fault may be one from before it. So a job counts as recovered only when
two different statuses, both of a newer generation than the fault met and both with all nodes, show
a step that has grown from one to the other. All times are those of one clock, ours, and say when
something was *seen*.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from chaos.cluster.fault import TRAITS, Kind
from chaos.cluster.observation import FINAL, JobView, Observation

__all__ = ["Fall", "Fault", "Log", "Track", "begin", "disturbed", "follow", "struck"]

UNHEARD_S = 60.0
"""So long after it was asked for, the API server may do what it has not answered to: its own limit
for a request, by default."""
UNNOTICED_S = 25.0
"""What a fault that may change nothing has not changed after two statuses, it does not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that was done."""

    number: int
    kind: Kind
    node: str
    pod_uid: str
    victim: str
    """Who was struck, in words."""
    at_s: float
    before: Mapping[str, JobView]
    """The jobs that the pod served, as they were seen last before it."""
    note: str = ""
    is_sure: bool = True
    """It is known that it was done."""

    def may_have_passed(self, now_s: float) -> bool:
        """Return whether a fault that changes nothing, or was never done, would be over by now."""
        if self.is_sure:
            return TRAITS[self.kind].may_pass and now_s > self.at_s + UNNOTICED_S
        return now_s > self.at_s + UNHEARD_S + UNNOTICED_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A fault, and what was seen since."""

    fault: Fault
    any_step: Mapping[str, int] = field(default_factory=dict)
    """By job: the step with which it was first seen after the fault."""
    full_step: Mapping[str, int] = field(default_factory=dict)
    """By job: the step with which it was first seen with all nodes again."""
    went_on: frozenset[str] = frozenset()
    """The jobs that have made steps since, with however many nodes."""
    complete: frozenset[str] = frozenset()
    """The jobs that have made steps since with all of their nodes."""
    went_on_s: float | None = None
    recovered_s: float | None = None
    """When that was seen of all jobs, and an agent's pod served on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A step that was less than one that had been seen before."""

    job: str
    seen: int
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """All that was done and seen."""

    began_s: float
    tracks: tuple[Track, ...] = ()
    first: Mapping[str, JobView] = field(default_factory=dict)
    last: Mapping[str, JobView] = field(default_factory=dict)
    most_step: Mapping[str, int] = field(default_factory=dict)
    """By job, of steps that its ranks reported."""
    falls: tuple[Fall, ...] = ()
    has_stepped: frozenset[str] = frozenset()
    """The jobs that were seen to make a step with all of their nodes."""
    most_disturbed: int = 0
    """Of pods that were struck, at the same time."""
    ends: Mapping[str, JobView] = field(default_factory=dict)
    """The jobs that were seen to be over, or gone."""

    @property
    def open(self) -> tuple[Track, ...]:
        return tuple(track for track in self.tracks if track.recovered_s is None)


def begin(seen: Observation, now_s: float) -> Log:
    """Return a log in which nothing was done yet."""
    return follow(Log(began_s=now_s, first=seen.jobs, last=seen.jobs), seen, now_s)


def struck(log: Log, fault: Fault) -> Log:
    """Add a fault that was done."""
    tracks = (*log.tracks, Track(fault=fault))
    nodes = {track.fault.node for track in log.open} | {fault.node}
    return replace(log, tracks=tracks, most_disturbed=max(log.most_disturbed, len(nodes)))


def disturbed(log: Log, seen: Observation) -> frozenset[str]:
    """Return the nodes that count for the limit: ours, and those that others have disturbed."""
    return frozenset(track.fault.node for track in log.open) | seen.absent


def follow(log: Log, seen: Observation, now_s: float) -> Log:
    """Take up one look."""
    steps, falls = dict(log.most_step), list(log.falls)
    stepped, ends = set(log.has_stepped), dict(log.ends)
    for name, job in seen.jobs.items():
        before = log.last.get(name)
        if before is not None and _has_grown(before, job) and before.is_full and job.is_full:
            stepped.add(name)
        if job.phase in FINAL:
            ends[name] = job
        if job.step is None or not job.is_measured or job == before:
            continue
        if job.step < (most := steps.get(name, job.step)):
            falls.append(Fall(job=name, seen=most, now=job.step))
        steps[name] = job.step  # From here on: one fall is told once.
    for name in log.last.keys() - seen.jobs.keys():
        ends[name] = replace(
            log.last[name], phase="Deleted", message="its object or its label is gone"
        )
    return replace(
        log,
        tracks=tuple(_track(track, seen, ends, now_s) for track in log.tracks),
        first={**seen.jobs, **log.first},
        last={**log.last, **seen.jobs},
        most_step=steps,
        falls=tuple(falls),
        has_stepped=frozenset(stepped),
        ends=ends,
    )


# --- private ----------------------------------------------------------------------------------


def _track(track: Track, seen: Observation, ends: Mapping[str, JobView], now_s: float) -> Track:
    if track.recovered_s is not None:
        return track
    fault = track.fault
    first, full = dict(track.any_step), dict(track.full_step)
    went_on, complete = set(track.went_on), set(track.complete)
    for name, before in fault.before.items():
        if name in ends:
            continue  # Nothing more is to be seen of it: the fault stays open, and is not judged.
        job = seen.jobs.get(name)
        if job is None or not _is_after(fault, before, job, now_s) or job.step is None:
            continue
        # Compared with what was seen since: one that was started anew may be far behind.
        if job.step > first.setdefault(name, job.step):
            went_on.add(name)
        first[name] = min(first[name], job.step)
        if not job.is_full:
            full.pop(name, None)
        elif job.step > full.setdefault(name, job.step):
            complete.add(name)
    has_gone_on = went_on >= fault.before.keys()
    is_back = complete >= fault.before.keys() and _is_served(fault, seen, now_s)
    return replace(
        track,
        any_step=first,
        full_step=full,
        went_on=frozenset(went_on),
        complete=frozenset(complete),
        went_on_s=track.went_on_s if track.went_on_s is not None or not has_gone_on else now_s,
        recovered_s=now_s if is_back else None,
    )


def _is_after(fault: Fault, before: JobView, job: JobView, now_s: float) -> bool:
    """Whether a status tells of the time after a fault."""
    if job.generation > before.generation:
        return True
    return fault.may_have_passed(now_s)


def _is_served(fault: Fault, seen: Observation, now_s: float) -> bool:
    """Whether an agent serves on the fault's node: after the end of a pod, another pod."""
    pod = seen.serving.get(fault.node)
    if pod is None:
        return False
    stays = TRAITS[fault.kind].is_of_worker or fault.may_have_passed(now_s)
    return stays or pod.uid != fault.pod_uid


def _has_grown(before: JobView, job: JobView) -> bool:
    return job.step is not None and before.step is not None and job.step > before.step

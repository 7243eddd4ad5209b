"""The records in etcd about jobs, joined for readers. Pure over a snapshot."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from operator import add

from elasticd.control.report.autoscaler import Autoscaling, autoscaling
from elasticd.control.report.change_report import ChangeReport, change_reports
from elasticd.control.report.job_time import JobTime, job_time
from elasticd.control.report.occupancy import (
    broken,
    elsewhere,
    kept_on,
    left_out,
    read_cluster,
    waiting_for,
)
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.records.account.incident import PHASES, Incident
from elasticd.records.account.late import LateNode, LateNodes
from elasticd.records.codec import decode
from elasticd.records.ids import JobName
from elasticd.records.job import JobSpec, JobStatus, Want, size_want, target_nodes
from elasticd.records.keys import Keys
from elasticd.records.member import Member, Result, Saved, Training
from elasticd.records.reason import Cause, Phase
from elasticd.records.world import World
from elasticd.store.api import KeyValue, Store

__all__ = [
    "JobReport",
    "job_report",
    "job_reports",
    "read_job",
    "with_elsewhere",
]

STEPS_EXPECTED_S = 60.0
"""If a generation of this age has no step, its script reports no steps."""
INCIDENTS_KEPT = 4096
"""The number of decoded incidents in the cache, for callers that read repeatedly; about 2 KB each.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    spec: JobSpec
    status: JobStatus
    world: World | None = None
    members: tuple[Member, ...] = ()
    wants: Mapping[str, Want] = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    changes: tuple[ChangeReport, ...] = ()
    """The changes in the order of their generations; the first is the first world."""
    incidents: tuple[Incident, ...] = ()
    """The incidents of which `changes` are made, one for each node."""
    time: JobTime | None = None
    """The time account of all slots of the job; None if no agent wrote one."""
    late: tuple[LateNode, ...] = ()
    """The nodes for which all others waited, in the order in which they were found."""
    autoscaling: Autoscaling | None = None
    """The policy and the autoscaler's records; None if there never were any."""
    step: int = 0
    """The applied steps, as the node of rank 0 last wrote; 0 if none, or if they are not known."""
    elsewhere: str = ""
    """For a job that waits, what holds the nodes that it does not have (see `with_elsewhere`)."""

    @property
    def late_now(self) -> tuple[LateNode, ...]:
        """Return the nodes for which all others wait now; none if the job is over."""
        if self.status.phase.is_final:
            return ()
        return tuple(node for node in self.late if not node.until_unix_s)

    @property
    def training(self) -> Training | None:
        """Return the sums of the whole run once it is over; None in restart mode."""
        trainings = [r.training for r in self.results if r.training is not None]
        return next((t for t in trainings if t.note), trainings[0] if trainings else None)

    @property
    def saved(self) -> Saved | None:
        """Return the progress of the last checkpoint, if the job ended before its training did."""
        if self.status.phase not in (Phase.STOPPED, Phase.WAITING):
            return None
        saved = [result.saved for result in self.results if result.saved is not None]
        return reduce(add, saved) if saved else None

    @property
    def target_nodes(self) -> int:
        return target_nodes(self.spec, self.wants)

    @property
    def size_want(self) -> Want | None:
        """Return the wish that decides the job's size; None if there is no wish.

        Without a wish the job is as large as it may be.
        """
        return size_want(self.wants)

    @property
    def is_in_process(self) -> bool:
        """Return whether the job's workers train under `elasticd.run`, as far as etcd knows."""
        return self.status.is_in_process or any(m.is_in_process for m in self.members)

    @property
    def reports_steps(self) -> bool | None:
        """Return whether the job reports its steps; None if it is too young to know."""
        if self.is_in_process or (self.time is not None and self.time.has_steps):
            return True
        is_old = self.time is not None and self.time.generation_s >= STEPS_EXPECTED_S
        return False if is_old and self.status.phase is Phase.RUNNING else None

    @property
    def message(self) -> str:
        """Return the status's message; if no node serves the job yet, for what it waits."""
        if self.status.message or self.status.phase is not Phase.PENDING:
            is_running = self.status.phase is Phase.RUNNING
            stays = kept_on(self.world, self.members) if is_running else ""
            unable = "" if self.status.phase.is_final else broken(self.members)
            waits = (self.status.message + unable + self.elsewhere).removeprefix("; ")
            parts = (waits, stays, left_out(self.members))
            return "; ".join(part for part in parts if part)
        return waiting_for(self.spec, self.members) + self.elsewhere

    def arrivals(self, change: ChangeReport) -> str:
        """Return the progress of a change, or that the next change replaced it.

        The text is empty once a node wrote its measurements of the change.
        """
        world = self.world
        is_last = world is not None and world.generation == change.generation
        if is_last and self.status.phase is Phase.RUNNING and change.told < change.nodes:
            arrived = sum(member.arrived == change.generation for member in self.members)
            return f"under way: {arrived} of {change.nodes} nodes have arrived"
        if change.told:
            return ""
        return "no node went through it before " + ("the end" if is_last else "the next change")

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Return the sizes of the job's worlds in order, without repetitions in a row."""
        sizes: list[int] = []
        for change in self.changes:
            if not sizes or sizes[-1] != change.world_size:
                sizes.append(change.world_size)
        return tuple(sizes)

    @property
    def restarts_by_cause(self) -> Mapping[Cause, int]:
        counts: dict[Cause, int] = {}
        for change in self.changes:
            cause = change.reason.cause
            if change.generation > 1 and cause is not None:
                counts[cause] = counts.get(cause, 0) + 1
        return counts

    @property
    def unnoticed_s(self) -> float:
        """Return the seconds without a step before changes were noticed, as far as known."""
        return sum(change.unnoticed_s for change in self.changes if change.generation > 1)

    @property
    def lost_s(self) -> Mapping[str, float]:
        """Return the seconds that all changes after the first world took, by phase."""
        after = [change for change in self.changes if change.generation > 1]
        seen = {phase for change in after for phase in change.phases_s}
        return {
            phase: sum(change.phases_s.get(phase, 0.0) for change in after)
            for phase in PHASES
            if phase in seen
        }


def read_job(store: Store, keys: Keys, job: JobName) -> JobReport | None:
    """Return the report of one job; None if there is no such job.

    Raises: NotSupported: a record has a newer schema.
    """
    return job_report(store.list(keys.job(job)).items, keys, job)


def job_report(items: Iterable[KeyValue], keys: Keys, job: JobName) -> JobReport | None:
    """Return the report of a job, joined from all records under `jobs/<job>/`.

    Raises:
        NotSupported: a record has a newer schema.
    """
    values = {item.key: item.value for item in items}
    if (spec := values.get(keys.spec(job))) is None:
        return None
    status, world = values.get(keys.status(job)), values.get(keys.world(job))
    incidents = [_incident(value) for value in _under(values, keys.incidents(job))]
    wants = [decode(Want, value) for value in _under(values, keys.wants(job))]
    late = values.get(keys.late(job))
    decoded = decode(JobSpec, spec)
    standing = decode(JobStatus, status) if status is not None else JobStatus()
    time = job_time(
        values.get(keys.progress(job)),
        _under(values, keys.times_spent(job)),
        uid=decoded.uid,
        is_over=standing.phase.is_final,
    )
    return JobReport(
        spec=decoded,
        status=standing,
        world=decode(World, world) if world is not None else None,
        members=tuple(decode(Member, value) for value in _under(values, keys.members(job))),
        wants={want.writer: want for want in wants},
        results=tuple(decode(Result, value) for value in _under(values, keys.results(job))),
        changes=change_reports(incidents),
        late=decode(LateNodes, late).nodes if late is not None else (),
        incidents=tuple(incidents),
        time=time,
        autoscaling=autoscaling(values, keys, job, decoded.uid),
        step=time.step if time is not None else 0,
    )


def job_reports(
    items: Iterable[KeyValue], keys: Keys, unreadable: UnreadableRecords
) -> tuple[JobReport, ...]:
    """Return the reports of all jobs, joined from all records under `jobs/`.

    `unreadable` notes the jobs that are left out.
    """
    by_job: dict[str, list[KeyValue]] = {}
    for item in items:
        name = item.key.removeprefix(keys.jobs).split("/", 1)[0]
        by_job.setdefault(name, []).append(item)
    reports = []
    for name, found in sorted(by_job.items()):
        with unreadable.left_out(f"job {name}"):
            reports.append(job_report(found, keys, JobName(name)))
    return tuple(report for report in reports if report is not None)


def with_elsewhere(
    store: Store, keys: Keys, reports: Iterable[JobReport], unreadable: UnreadableRecords
) -> list[JobReport]:
    """Return the reports; those of jobs that wait for nodes get the jobs that hold these nodes.

    `unreadable` notes the jobs and nodes that are left out.
    """
    reports = list(reports)
    if not any(_is_waiting(report) for report in reports):
        return reports
    cluster = read_cluster(store, keys, unreadable)
    return [
        replace(report, elsewhere=elsewhere(report.spec, report.members, cluster))
        if _is_waiting(report)
        else report
        for report in reports
    ]


def _is_waiting(report: JobReport) -> bool:
    return report.status.phase in (Phase.PENDING, Phase.WAITING)


@lru_cache(INCIDENTS_KEPT)
def _incident(value: bytes) -> Incident:
    """Decode an incident.

    The results are cached: most incidents do not change between two readings, and decoding takes
    0.1 ms.
    """
    return decode(Incident, value)


def _under(values: Mapping[str, bytes], prefix: str) -> list[bytes]:
    return [values[key] for key in sorted(values) if key.startswith(prefix)]

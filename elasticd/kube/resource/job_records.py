"""What stands in etcd of one job, as far as the operator decides by it or shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.report import JobReport
from elasticd.records.autoscale.policy import Policy
from elasticd.records.failure import Failure
from elasticd.records.ids import NodeId
from elasticd.records.job import JobSpec, JobStatus, Want, target_nodes

__all__ = [
    "CHANGES_KEPT",
    "OPERATOR",
    "JobRecords",
    "ReportedProgress",
    "failure_text",
    "job_records",
]

OPERATOR = "operator"
"""The writer of the operator's wants."""
CHANGES_KEPT = 32
"""How many of the newest changes of world are kept: an operator that was away writes events about
as many."""
FAILURE_LIMIT = 400
"""The characters of an exception that a status and an event show: an event has room for 1,024."""
UNSERVED_LIMIT_S = 10.0
"""How long a job may have no node: after an etcd that was away, agents need a lease's time to come
back, with workers that save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedProgress:
    """What the agents of a running job answered when they were asked."""

    step: int | None = None
    steps_per_second: float | None = None
    checkpoint_step: int | None = None
    checkpoint_unix_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecords:
    """A job in etcd."""

    spec: JobSpec
    status: JobStatus = field(default_factory=JobStatus)
    is_active: bool = True
    """False if it is over, and its records still stand."""
    wants: Mapping[str, Want] = field(default_factory=dict)
    members: tuple[NodeId, ...] = ()
    """The nodes that serve it."""
    unserved_s: float = 0.0
    """For how long the operator has seen none."""
    policy: Policy | None = None
    changes: tuple[ChangeReport, ...] = ()
    """The newest changes of world, in the order of their generations."""
    losses_by_reason: Mapping[str, int] = field(default_factory=dict)
    """Changes that nobody planned, after the first world."""
    message: str = ""
    """What it waits for, or why it ended."""
    goodput: float | None = None
    """None if not known."""
    step: int = 0
    """0 if there is none, or not known."""
    ended_at: int | None = None
    """The applied steps at its end, as its nodes said goodbye; None if not known, or if it is not
    over."""
    measured: ReportedProgress = field(default_factory=ReportedProgress)

    @property
    def is_over(self) -> bool:
        return not self.is_active and self.status.phase.is_final

    @property
    def own_want(self) -> Want | None:
        """Return the operator's want."""
        return self.wants.get(OPERATOR)

    @property
    def is_stop_wanted(self) -> bool:
        return any(want.is_stop for want in self.wants.values())

    @property
    def needs_stop(self) -> bool:
        """Return whether the operator has to do more so that the job ends.

        It wished so, and then the last node that served it was lost: nobody is left who would read
        the wish. So the operator ends the job itself, as it does if there never was a node.
        """
        has_wished = self.own_want is not None and self.own_want.is_stop
        return self.is_active and (self.is_unserved or not has_wished)

    @property
    def is_unserved(self) -> bool:
        """Return whether no node serves it, for longer than living nodes that lost their lease
        need.
        """
        return self.unserved_s >= UNSERVED_LIMIT_S

    @property
    def wanted_nodes(self) -> int:
        return target_nodes(self.spec, self.wants)


def job_records(
    report: JobReport,
    *,
    is_active: bool,
    measured: ReportedProgress | None = None,
    unserved_s: float = 0.0,
) -> JobRecords:
    """Take what is needed of a report."""
    found = report.autoscaling
    losses: dict[str, int] = {}
    for change in report.changes:
        if change.generation > 1 and not change.reason.is_planned:
            losses[change.reason.value] = losses.get(change.reason.value, 0) + 1
    return JobRecords(
        spec=report.spec,
        status=report.status,
        is_active=is_active,
        wants=report.wants,
        members=tuple(member.node for member in report.members),
        unserved_s=unserved_s,
        policy=found.policy if found is not None else None,
        changes=report.changes[-CHANGES_KEPT:],
        losses_by_reason=losses,
        message=report.message,
        goodput=(
            report.time.goodput if report.time is not None and report.time.has_steps else None
        ),
        step=report.step,
        ended_at=_ended_at(report),
        measured=measured or ReportedProgress(),
    )


def failure_text(failure: Failure) -> str:
    """Return which rank failed and how, in one line.

    The text of an exception is its first line. A worker that only exited with a code has the last
    line that it wrote, which is where an interpreter says what it could not do.
    """
    said = failure.exception
    if not said or said.startswith("SystemExit"):
        said = failure.traceback.rstrip().rpartition("\n")[2] or said
    first = said.strip().partition("\n")[0]
    text = f"rank {failure.rank} on {failure.host} failed first: {failure.ending}"
    return f"{text}, {first[:FAILURE_LIMIT]}" if first else text


def _ended_at(report: JobReport) -> int | None:
    """Return the last step: what is measured now and then may be some steps behind."""
    if not report.status.phase.is_final:
        return None
    trained = [each.training.steps for each in report.results if each.training is not None]
    saved = [each.saved.at_step for each in report.results if each.saved is not None]
    return max(trained + saved, default=None)

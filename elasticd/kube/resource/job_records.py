"""The records of one job in etcd that the operator uses for decisions or shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.report import JobReport
from elasticd.records.autoscale.policy import Policy
from elasticd.records.failure import Failure
from elasticd.records.ids import NodeId
from elasticd.records.job import (
    UNSERVED_LIMIT_S,
    JobSpec,
    JobStatus,
    Want,
    may_end_unserved,
    target_nodes,
)

__all__ = [
    "CHANGES_KEPT",
    "OPERATOR",
    "JobRecords",
    "ReportedProgress",
    "failure_text",
    "job_records",
]

OPERATOR = "operator"
"""The writer name of the operator's wants."""
CHANGES_KEPT = 32
"""The number of the newest changes of world that are kept: an operator that was away writes events
about these."""
FAILURE_LIMIT = 400
"""The limit for an exception in a status or an event, in characters: an event has room for
1,024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedProgress:
    """The answer of a running job's agents."""

    step: int | None = None
    steps_per_second: float | None = None
    checkpoint_step: int | None = None
    checkpoint_unix_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecords:
    """The records of a job in etcd."""

    spec: JobSpec
    status: JobStatus = field(default_factory=JobStatus)
    is_active: bool = True
    """False if the job is over, but its records still exist."""
    wants: Mapping[str, Want] = field(default_factory=dict)
    members: tuple[NodeId, ...] = ()
    """The nodes that serve the job."""
    unserved_s: float = 0.0
    """For how many seconds the operator has observed no such node."""
    policy: Policy | None = None
    changes: tuple[ChangeReport, ...] = ()
    """The newest changes of world, in the order of their generations."""
    losses_by_reason: Mapping[str, int] = field(default_factory=dict)
    """The numbers of unplanned changes after the first world, by reason."""
    message: str = ""
    """Why the job waits, or why it ended."""
    goodput: float | None = None
    """The goodput; None if not known."""
    step: int = 0
    """The applied steps; 0 if there are none, or if not known."""
    ended_at: int | None = None
    """The applied steps at the job's end, from the nodes' last records; None if not known, or if
    the job is not over."""
    measured: ReportedProgress = field(default_factory=ReportedProgress)

    @property
    def is_over(self) -> bool:
        return not self.is_active and self.status.phase.is_final

    @property
    def own_want(self) -> Want | None:
        """Return what the operator itself wants of the job; None if it wants nothing."""
        return self.wants.get(OPERATOR)

    @property
    def is_stop_wanted(self) -> bool:
        return any(want.is_stop for want in self.wants.values())

    @property
    def needs_stop(self) -> bool:
        """Return whether the operator must end the job itself.

        If the last node was lost after the operator wrote the want to stop, no node is left that
        would read this want. So the operator ends the job, as it does for a job that never had a
        node.
        """
        has_wished = self.own_want is not None and self.own_want.is_stop
        return self.is_active and (self.is_unserved or not has_wished)

    @property
    def is_unserved(self) -> bool:
        """Return whether no node has served the job for longer than the time that living nodes need
        after they lost their lease.
        """
        return self.unserved_s >= UNSERVED_LIMIT_S

    @property
    def may_be_ended(self) -> bool:
        """Return whether the operator may end the job itself if no node serves it: no workers are
        about to come back that save.
        """
        return may_end_unserved(self.status, self.unserved_s)

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
    """Build a job's records from its report."""
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

    The text of an exception is its first line. If a worker only exited with a code, the text is the
    last line of its output, where an interpreter writes its error.
    """
    said = failure.exception
    if not said or said.startswith("SystemExit"):
        said = failure.traceback.rstrip().rpartition("\n")[2] or said
    first = said.strip().partition("\n")[0]
    text = f"rank {failure.rank} on {failure.host} failed first: {failure.ending}"
    return f"{text}, {first[:FAILURE_LIMIT]}" if first else text


def _ended_at(report: JobReport) -> int | None:
    """Return the last step; the measured number may be some steps behind."""
    if not report.status.phase.is_final:
        return None
    trained = [each.training.steps for each in report.results if each.training is not None]
    saved = [each.saved.at_step for each in report.results if each.saved is not None]
    return max(trained + saved, default=None)

"""The report of a job whose policy may be changed: one that is not over."""

from elasticd.cli.jobs.options import report_of
from elasticd.cli.record_source import RecordSource
from elasticd.control.report.report import JobReport
from elasticd.errors import NotFound
from elasticd.records.ids import JobName

__all__ = ["running_report"]


def running_report(source: RecordSource, name: JobName) -> JobReport:
    """Read a job that is not over.

    Raises:
        NotFound: there is no such job (the message lists similar names), or the job is over.
    """
    report = report_of(source, name)
    if source.is_archive or report.status.phase.is_final:
        raise NotFound(
            f"Job {name!r} is over ({report.status.phase}): a policy sizes jobs that run. "
            f"`elasticd autoscale explain {name}` tells what was decided."
        )
    return report

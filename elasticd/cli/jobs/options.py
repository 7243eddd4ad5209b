"""Shared by the commands of this package: flags, and the report of a job that must exist."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from elasticd.cli.etcd_flags import where_options
from elasticd.cli.record_source import RecordSource
from elasticd.control import jobs
from elasticd.control.report.report import JobReport, read_job
from elasticd.records.ids import JobName

__all__ = ["json_options", "report_of"]

F = TypeVar("F", bound=Callable[..., Any])


def json_options(command: F) -> F:
    """Add --json and the flags that say where the records are."""
    command = click.option(
        "--json", "is_json", is_flag=True, help="Print one JSON document, for programs."
    )(command)
    return where_options(command)


def report_of(source: RecordSource, name: JobName) -> JobReport:
    """Return the report of a job.

    Raises:
        NotFound: there is no such job; the message lists similar names.
    """
    report = read_job(source.store, source.keys, name)
    if report is None:
        jobs.find_spec(source.store, source.keys, name)  # raises
        raise AssertionError("a spec without a report")
    return report

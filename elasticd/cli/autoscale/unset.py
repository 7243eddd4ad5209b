"""`elasticd autoscale unset`: removes a job's policy."""

from dataclasses import replace
from typing import Any

import click

from elasticd.autoscale.explain.size_wishes import size_sentence
from elasticd.cli.autoscale.running_job import running_report
from elasticd.cli.jobs.change.command_report import CommandReport, change_options
from elasticd.cli.record_source import job_source
from elasticd.control.job_policy import AUTOSCALER, check_has_policy, unset_policy

__all__ = ["unset"]


@click.command()
@click.argument("job")
@change_options
def unset(job: str, is_dry_run: bool, is_json: bool, **values: Any) -> int:
    """Remove a job's policy, and the size that the autoscaler chose by it.

    After that the job has the size that a person or the operator set, otherwise as many nodes as it
    may have. Its curve and the decisions stay, for `explain` and for another policy.
    """
    said = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    with job_source(values, job) as (source, name):
        report = running_report(source, name)
        check_has_policy(report)
        if not is_dry_run:
            unset_policy(source.store, source.keys, report.spec)
    left = {writer: want for writer, want in report.wants.items() if writer != AUTOSCALER}
    after = replace(report, wants=left)
    said(
        f"job {name} has no policy any more; {size_sentence(after)}",
        job=name,
        target_nodes=after.target_nodes,
    )
    return 0

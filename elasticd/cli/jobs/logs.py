"""`elasticd logs`: what the workers wrote."""

from typing import Any

import click

from elasticd.cli.jobs.follow import follow_job
from elasticd.cli.jobs.log_reader import print_logs
from elasticd.cli.jobs.options import json_options, report_of
from elasticd.cli.number import at_least
from elasticd.cli.screen import Screen
from elasticd.cli.source import job_source
from elasticd.control.console import RankChoice

__all__ = ["logs"]


@click.command()
@click.argument("job", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--rank", type=at_least(0), multiple=True, help="[0]; may be repeated.")
@click.option("--generation", type=at_least(1), help="[with -f the current, else all]")
@json_options
def logs(
    job: str | None,
    follow: bool,
    rank: tuple[int, ...],
    generation: int | None,
    is_json: bool,
    **values: Any,
) -> int:
    """Print what a job's workers wrote: stdout to stdout, stderr to stderr.

    Without JOB: of the newest local run.
    """
    ranks = rank or (0,)
    with job_source(values, job) as (source, name):
        report = report_of(source, name)
        if follow and not report.status.phase.is_final:
            follow_job(values, source, report, RankChoice(ranks=frozenset(ranks)), Screen())
        else:
            print_logs(source, report, ranks, generation, is_json=is_json)
    return 0

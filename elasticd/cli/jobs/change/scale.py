"""`elasticd scale`: a person sets the size of a job, or withdraws that wish."""

from typing import Any

import click

from elasticd.cli.etcd_flags import Values
from elasticd.cli.jobs.change.command_report import CommandReport, change_options
from elasticd.cli.parse_value import at_least
from elasticd.cli.record_source import check_live, job_source
from elasticd.cli.terminal import words
from elasticd.control import jobs

__all__ = ["scale", "scale_job", "unpin_job"]

AUTO = 0
"""The number that stands for `auto` among numbers of nodes."""


def _number_or_auto(text: str) -> int:
    if text == "auto":
        return AUTO
    try:
        return at_least(1)(text)
    except click.BadParameter as exc:
        raise click.BadParameter(f"{exc.message}, or `auto`") from exc


@click.command()
@click.argument("job")
@click.argument("nodes", metavar="N|auto", type=_number_or_auto)
@change_options
def scale(job: str, nodes: int, is_dry_run: bool, is_json: bool, **values: Any) -> int:
    """Set a job's number of nodes, within the range of its --nnodes.

    `auto` withdraws this wish: then the autoscaler chooses the size if the job has a policy;
    otherwise the job is as large as it may be.
    """
    output = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    if nodes == AUTO:
        unpin_job(job, output, values)
    else:
        scale_job(job, nodes, output, values)
    return 0


def unpin_job(job: str, output: CommandReport, values: Values) -> None:
    """Withdraw the wish for a size, and report the size that is wanted after that."""
    with job_source(values, job) as (source, name):
        check_live(source, job)
        nodes = jobs.unpin(source.store, source.keys, name, is_dry_run=output.is_dry_run)
    output(
        f"job {job} is not scaled by a person any more: {words.counted(nodes, 'node')} wanted",
        job=job,
        nodes=nodes,
    )


def scale_job(job: str, nodes: int, output: CommandReport, values: Values) -> None:
    """Write the wish for a number of nodes, and report it."""
    with job_source(values, job) as (source, name):
        check_live(source, job)
        spec = jobs.scale(source.store, source.keys, name, nodes, is_dry_run=output.is_dry_run)
    output(
        f"job {job} is wanted on {nodes} node{'s' if nodes != 1 else ''} "
        f"(of {spec.min_nodes}:{spec.max_nodes})",
        job=job,
        nodes=nodes,
    )

"""`elasticd prune`: removes the records of jobs that are over from etcd."""

from typing import Any

import click

from elasticd.cli.jobs.change.command_report import CommandReport, change_options
from elasticd.cli.record_source import sources
from elasticd.cli.terminal import words
from elasticd.control import prune as pruning
from elasticd.errors import NotFound
from elasticd.records.ids import JobName, checked_name

__all__ = ["prune"]


@click.command()
@click.argument("job", nargs=-1)
@change_options
def prune(job: tuple[str, ...], is_dry_run: bool, is_json: bool, **values: Any) -> int:
    """Remove the records of jobs that are over from etcd: of the named jobs, or of all.

    Logs and checkpoints stay. The agents do the same by themselves after --keep-ended.
    """
    output = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    names = [JobName(checked_name("job", name)) for name in job]
    total = 0
    with sources(values) as opened:
        clusters = [source for source in opened if source.settings is not None]
        if not clusters:
            raise NotFound("Local runs keep nothing in etcd: give --etcd to prune a cluster's.")
        for done in pruning.prune(
            clusters[0].store, clusters[0].keys, names, is_dry_run=is_dry_run
        ):
            total += done.records
            count = words.counted(done.records, "record")
            output(f"job {done.job}: {count} removed", job=done.job, records=done.records)
    if is_json:
        return 0
    if not total:
        click.echo("There is no job that is over: nothing to remove.")
    elif not is_dry_run:
        click.echo("etcd has the space back when it is compacted and defragmented.")
    return 0

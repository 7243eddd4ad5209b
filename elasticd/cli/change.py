"""`scale`, `drain`, `stop`, `prune`: what a person changes. Each has `--dry-run`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from elasticd.cli import words
from elasticd.cli.connect import where_options
from elasticd.cli.source import Source, job_source, sources
from elasticd.control import jobs
from elasticd.control import prune as pruning
from elasticd.control.report import JobReport, read_job
from elasticd.control.session import STOP_SLACK_S
from elasticd.control.state_loss import check_drain, check_stop
from elasticd.errors import NotFound, Refused, Unavailable
from elasticd.records.ids import JobName, NodeId, checked_name
from elasticd.records.job import JobSpec

__all__ = ["drain", "prune", "scale", "stop"]

F = TypeVar("F", bound=Callable[..., Any])


_force = click.option(
    "--force", is_flag=True, help="Also if what a job has trained is thrown away by it."
)


def _options(command: F) -> F:
    command = click.option(
        "--dry-run", "is_dry_run", is_flag=True, help="Check and say what would be done."
    )(command)
    return where_options(command)


@click.command()
@click.argument("job")
@click.argument("nodes", type=click.IntRange(min=1))
@_options
def scale(job: str, nodes: int, is_dry_run: bool, **values: Any) -> int:
    """Wish for this many nodes, within what the job was submitted with."""
    with job_source(values, job) as (source, name):
        _check_live(source, job)
        spec = jobs.scale(source.store, source.keys, name, nodes, is_dry_run=is_dry_run)
    _say(
        is_dry_run,
        f"job {job} is wanted on {nodes} node{'s' if nodes != 1 else ''} "
        f"(of {spec.min_nodes}:{spec.max_nodes})",
    )
    return 0


@click.command()
@click.argument("node")
@click.option("--undo", is_flag=True, help="Take it back: the node may work again.")
@click.option("--why", "reason", default="", metavar="TEXT", help="Kept with the node.")
@_force
@_options
def drain(node: str, undo: bool, reason: str, force: bool, is_dry_run: bool, **values: Any) -> int:
    """Take a node out of service: its jobs go on without it, and it gets no others.

    Refused if it has the only copy of what a job has trained, and nobody could take that over.
    """
    name = NodeId(checked_name("node", node))
    with sources(values) as opened:
        live = [source for source in opened if not source.is_archive]
        if not live:
            raise NotFound(f"There is no node {node!r}: no local run is in progress, see --etcd.")
        source = next(
            (s for s in live if s.store.get(s.keys.node(name)) is not None),
            live[0],
        )
        if undo:
            jobs.undrain(source.store, source.keys, name, is_dry_run=is_dry_run)
        else:
            if not force:
                check_drain(source.store, source.keys, name)
            jobs.drain(source.store, source.keys, name, why=reason, is_dry_run=is_dry_run)
    _say(is_dry_run, f"node {node} may work again" if undo else f"node {node} is being drained")
    return 0


@click.command()
@click.argument("job")
@click.option("--why", "reason", default="elasticd stop", metavar="TEXT", help="Kept with the job.")
@click.option(
    "--forget", is_flag=True, help="The job is served by no node any more: free its name."
)
@_force
@_options
def stop(job: str, reason: str, forget: bool, force: bool, is_dry_run: bool, **values: Any) -> int:
    """End a job: its workers get SIGTERM and the shutdown timeout.

    Those that call `elasticd.run` under --checkpoint save their state first; then this waits, and
    tells what came of it. Without --checkpoint it is refused once they have trained.
    """
    with job_source(values, job) as (source, name):
        _check_live(source, job)
        if forget:
            jobs.forget(source.store, source.keys, name, is_dry_run=is_dry_run)
            _say(is_dry_run, f"job {job} is given up")
            return 0
        if not force:
            check_stop(source.store, source.keys, name)
        spec = jobs.stop(source.store, source.keys, name, why=reason, is_dry_run=is_dry_run)
        _say(is_dry_run, f"job {job} is asked to stop")
        if is_dry_run or spec.checkpoint is None:
            return 0
        try:
            report = _awaited(source, spec)
        except Unavailable:
            report = None  # A local run, and it has ended.
    if report is None:
        with job_source(values, job) as (source, name):
            report = read_job(source.store, source.keys, name)
    if report is not None and report.saved is not None:
        click.echo(f"job {job} was {report.saved.sentence}")
    return 0


@click.command()
@click.argument("job", nargs=-1)
@_options
def prune(job: tuple[str, ...], is_dry_run: bool, **values: Any) -> int:
    """Remove the records of jobs that are over from etcd: of these, or of all.

    Logs and checkpoints stay. The agents do the same by themselves after --keep-ended.
    """
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
            _say(is_dry_run, f"job {done.job}: {words.counted(done.records, 'record')} removed")
    if not total:
        click.echo("There is no job that is over: nothing to remove.")
    elif not is_dry_run:
        click.echo("etcd has the space back when it is compacted and defragmented.")
    return 0


def _awaited(source: Source, spec: JobSpec) -> JobReport | None:
    """How the job stands, once its workers have saved what they have, if they do."""
    report = read_job(source.store, source.keys, spec.name)
    if report is None or not report.status.is_in_process:
        return report
    wait_s = spec.shutdown_timeout_s + STOP_SLACK_S
    jobs.wait_left(source.store, source.keys, spec.name, timeout_s=wait_s)
    return read_job(source.store, source.keys, spec.name)


def _check_live(source: Source, job: str) -> None:
    if source.is_archive:
        raise Refused(f"Job {job!r} is over: `elasticd why {job}` tells what happened.")


def _say(is_dry_run: bool, sentence: str) -> None:
    click.echo(f"dry run, nothing was changed: {sentence}" if is_dry_run else sentence)

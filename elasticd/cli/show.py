"""`status`, `nodes`, `logs`, `why`: what stands, and what happened."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from elasticd.cli import words
from elasticd.cli.connect import where_options
from elasticd.cli.number import at_least
from elasticd.cli.source import Source, job_source, sources
from elasticd.cli.table import show_table
from elasticd.control import jobs
from elasticd.control.occupancy import read_cluster
from elasticd.control.progress import read_progress
from elasticd.control.report import (
    Change,
    JobReport,
    NodeReport,
    job_reports,
    node_reports,
    read_job,
    with_elsewhere,
)
from elasticd.records.codec import decode, to_plain
from elasticd.records.ids import JobName
from elasticd.records.member import Node
from elasticd.records.progress import RankProgress
from elasticd.records.reason import Phase

__all__ = ["logs", "nodes", "status", "why"]

PROPOSERS = 3
TROUBLE_TIMEOUT_S = 1.0
"""A node that does not answer is not in that trouble."""

F = TypeVar("F", bound=Callable[..., Any])


def _options(command: F) -> F:
    command = click.option(
        "--json", "is_json", is_flag=True, help="For programs: one JSON document."
    )(command)
    return where_options(command)


@click.command()
@click.argument("job", required=False)
@_options
def status(job: str | None, is_json: bool, **values: Any) -> int:
    """Show all jobs, or one; of a cluster (--etcd), else of the local runs in --log-dir."""
    if job is not None:
        with job_source(values, job) as (source, name):
            (report,) = with_elsewhere(source.store, source.keys, [_report(source, name)])
            ranks = read_progress(source.store, source.keys, report, source.settings)
            trouble = _trouble(source, report)
        if is_json:
            more = {"progress": to_plain(ranks), "trouble": trouble}
            click.echo(json.dumps({**_plain(report), **more}, indent=2))
            return 0
        _show_job(report, ranks)
        if trouble:
            click.echo(trouble)
        return 0
    found: list[JobReport] = []
    with sources(values) as opened:
        for source in opened:
            store, keys = source.store, source.keys
            found += with_elsewhere(store, keys, job_reports(store.list(keys.jobs).items, keys))
    if is_json:
        click.echo(json.dumps([_plain(report) for report in found], indent=2))
    elif not found:
        click.echo("There are no jobs.")
    else:
        show_table(
            ("JOB", "PHASE", "GENERATION", "NODES", "WORKERS", "RESTARTS", "MESSAGE"),
            [_job_row(report) for report in found],
        )
    return 0


@click.command()
@_options
def nodes(is_json: bool, **values: Any) -> int:
    """Show the nodes: of a cluster (--etcd), else of the local runs in --log-dir."""
    found: list[NodeReport] = []
    with sources(values) as opened:
        for source in opened:
            if not source.is_archive:
                store, keys = source.store, source.keys
                found += node_reports(
                    store.list(keys.nodes).items,
                    store.list(keys.drains).items,
                    keys,
                    read_cluster(store, keys).uses,
                )
    if is_json:
        click.echo(json.dumps([_node_plain(report) for report in found], indent=2))
    elif not found:
        click.echo("There are no nodes: `elasticd agent --etcd ...` on a machine makes it one.")
    else:
        show_table(
            ("NODE", "HOST", "ADDRESS", "SLOTS", "FREE", "JOBS", "STATE", "VERSION", "LABELS"),
            [_node_row(report) for report in found],
        )
    return 0


@click.command()
@click.argument("job", required=False)
@_options
def why(job: str | None, is_json: bool, **values: Any) -> int:
    """Tell what changed in a job, for what reason, who was first, and what it cost.

    Without JOB: of the newest local run.
    """
    with job_source(values, job) as (source, name):
        report = _report(source, name)
        ranks = read_progress(source.store, source.keys, report, source.settings)
    if is_json:
        plain = {
            "job": name,
            "status": to_plain(report.status),
            "changes": [_change_plain(change) for change in report.changes],
            "progress": to_plain(ranks),
        }
        click.echo(json.dumps(plain, indent=2))
        return 0
    for line in words.unkept_lines(report):
        click.echo(line)
    for change in report.changes:
        when = time.strftime("%H:%M:%S", time.localtime(change.at_unix_s))
        click.echo(f"{when}  {words.timeline(change)}")
        if arrivals := report.arrivals(change):
            click.echo(f"          {arrivals}")
        phases = ", ".join(
            f"{phase} {words.seconds(value)}" for phase, value in change.phases_s.items()
        )
        if phases:
            click.echo(f"          took {words.seconds(change.total_s)}: {phases}")
        if change.unnoticed_s:
            idle = words.seconds(change.unnoticed_s)
            click.echo(f"          before that no step had ended for {idle}")
        if change.step is not None:
            click.echo(f"          {words.progress(change)}")
    click.echo(words.ending(report.status))
    for line in (*words.standing(ranks), *words.training_lines(report)):
        click.echo(line)
    if words.is_failed(report.status) and report.status.failure is not None:
        for line in words.failure_lines(report.status.failure):
            click.echo(line)
    return 0


@click.command()
@click.argument("job", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--rank", type=at_least(0), multiple=True, help="[0]; may be repeated.")
@click.option("--generation", type=at_least(1), help="[with -f the current, else all]")
@_options
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
    from elasticd.cli.show_logs import follow_logs, print_logs

    ranks = rank or (0,)
    with job_source(values, job) as (source, name):
        report = _report(source, name)
        if follow and not report.status.phase.is_final:
            follow_logs(source, report, ranks)
        else:
            print_logs(source, report, ranks, generation, is_json=is_json)
    return 0


def _trouble(source: Source, report: JobReport) -> str:
    """Ask those who would propose the next world what etcd refuses to take from them."""
    from elasticd.control.output import HttpFetch

    if source.is_archive or report.status.phase.is_final or report.world is None:
        return ""
    fetch = HttpFetch(source.settings, timeout_s=TROUBLE_TIMEOUT_S)
    for place in report.world.nodes[:PROPOSERS]:
        item = source.store.get(source.keys.node(place.node))
        if item is not None and (sentence := fetch.trouble(decode(Node, item.value))):
            return f"node {place.node} cannot write to etcd: {sentence}"
    return ""


def _report(source: Source, name: JobName) -> JobReport:
    report = read_job(source.store, source.keys, name)
    if report is None:
        jobs.find_spec(source.store, source.keys, name)  # raises, and says which are near
        raise AssertionError("a spec without a report")
    return report


def _plain(report: JobReport) -> dict[str, object]:
    return {
        "job": report.spec.name,
        "spec": to_plain(report.spec),
        "status": to_plain(report.status),
        "world": to_plain(report.world),
        "members": to_plain(report.members),
        "wants": to_plain(report.wants),
        "results": to_plain(report.results),
        "target_nodes": report.target_nodes,
        "message": report.message,
    }


def _change_plain(change: Change) -> object:
    plain = to_plain(change)
    assert isinstance(plain, dict)
    return {**plain, "total_s": change.total_s}


def _job_row(report: JobReport) -> tuple[str, ...]:
    world = report.world if report.status.phase.value == "running" else None
    return (
        report.spec.name,
        report.status.phase.value,
        str(report.status.generation),
        f"{len(world.nodes) if world else 0}/{report.target_nodes}",
        str(world.size if world else 0),
        str(report.status.restarts),
        report.message,
    )


def _node_plain(report: NodeReport) -> object:
    plain = to_plain(report)
    assert isinstance(plain, dict)
    return {**plain, "free_slots": report.free_slots}


def _node_row(report: NodeReport) -> tuple[str, ...]:
    node = report.node
    is_draining = report.is_drained or node.is_draining
    return (
        node.node,
        node.host,
        node.address,
        str(node.slots),
        str(report.free_slots),
        ", ".join(use.job if use.is_training else f"{use.job} (waits)" for use in report.uses),
        "draining" if is_draining else "ready",
        node.version,
        ", ".join(f"{key}={value}" for key, value in node.labels.items()),
    )


def _show_job(report: JobReport, ranks: Sequence[RankProgress]) -> None:
    spec, current = report.spec, report.status
    command = " ".join((spec.entry, *spec.args))
    click.echo(f"job {spec.name}: {current.phase}, generation {current.generation}")
    if report.message:
        click.echo(report.message)
    click.echo(f"runs: {command}")
    click.echo(
        f"nodes: {spec.min_nodes}:{spec.max_nodes}, wanted {report.target_nodes}; "
        f"workers on each: {spec.workers_per_node or 'as many as it has slots'}"
    )
    used, limits = current.budget, spec.limits
    click.echo(
        f"restarts: {current.restarts}; of the budget: script errors {used.user_error}/"
        f"{limits.user_error}, losses {used.node_loss}/{limits.node_loss}; "
        "a world that lasts gives them back"
    )
    for line in words.standing(ranks):
        click.echo(line)
    if report.world is not None and not current.phase.is_final:
        ready = {member.node: member for member in report.members}
        show_table(
            ("NODE", "HOST", "RANKS", "STATE"),
            [
                (
                    node.node,
                    node.host,
                    _span(node.first_rank, len(node.workers)),
                    _state(node.node in ready, report, node.node),
                )
                for node in report.world.nodes
            ],
        )
    if current.failure is not None and current.phase is not Phase.SUCCEEDED:
        for line in words.failure_lines(current.failure):
            click.echo(line)


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _state(is_member: bool, report: JobReport, node: str) -> str:
    if not is_member:
        return "gone"
    if report.status.phase is not Phase.RUNNING:
        return "waiting"
    assert report.world is not None
    member = next(m for m in report.members if m.node == node)
    if member.arrived < report.world.generation:
        return "starting"
    return "stands still" if member.standstill is not None else "training"

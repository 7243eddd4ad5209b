"""`elasticd status`: the state of all jobs, or of one job with its ranks."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from elasticd.autoscale.explain.size_wishes import status_lines, summary
from elasticd.cli.jobs.late_words import late_now
from elasticd.cli.jobs.options import json_options, report_of
from elasticd.cli.jobs.redraw import redraw
from elasticd.cli.record_source import (
    RecordSource,
    complain_once,
    job_source,
    killed_runs,
    sources,
)
from elasticd.cli.terminal import words
from elasticd.cli.terminal.table import show_table
from elasticd.control.progress import read_ranks
from elasticd.control.report.report import JobReport, job_reports, with_elsewhere
from elasticd.control.report.unreadable import UnreadableRecords, readable_nodes
from elasticd.records.account.progress import RankProgress
from elasticd.records.codec import to_plain
from elasticd.records.ids import Rank
from elasticd.records.reason import Phase

__all__ = ["show_job", "status", "status_plain"]

PROPOSERS = 3
TROUBLE_TIMEOUT_S = 1.0
"""The timeout of asking a node which writes etcd refuses: a silent node has another problem."""

FULL_BYTES = 1 << 20
"""A disk with less left counts as full: a file system keeps some blocks for itself."""


@click.command()
@click.argument("job", required=False)
@click.option(
    "--running", "is_running", is_flag=True, help="Without JOB: show only jobs that are not over."
)
@click.option(
    "-w", "--watch", "is_watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C."
)
@json_options
def status(job: str | None, is_running: bool, is_watch: bool, is_json: bool, **values: Any) -> int:
    """Show all jobs, or one: those of a cluster (--etcd), otherwise the local runs in --log-dir.

    With --watch and JOB it ends when the job is over; with --watch and --json it prints one
    document a line.
    """
    if job is not None and is_running:
        raise click.UsageError("--running is for the list of all jobs: leave JOB out, or the flag")
    indent = None if is_watch else 2

    def show() -> bool:
        if job is None:
            return _show_list(values, is_running=is_running, is_json=is_json, indent=indent)
        return _show_one(values, job, is_json=is_json, indent=indent)

    if is_watch:
        redraw(show, is_json=is_json)
    else:
        show()
    return 0


def _show_list(
    values: dict[str, Any], *, is_running: bool, is_json: bool, indent: int | None
) -> bool:
    """Print the list of jobs; return whether the list may still change."""
    found: list[JobReport] = []
    unreadable = UnreadableRecords()
    with sources(values) as opened:
        for source in opened:
            store, keys = source.store, source.keys
            reports = job_reports(store.list(keys.jobs).items, keys, unreadable)
            found += with_elsewhere(store, keys, reports, unreadable)
    killed = [] if is_running else killed_runs(values)
    if is_running:
        found = [report for report in found if not report.status.phase.is_final]
    if is_json:
        click.echo(json.dumps([status_plain(report) for report in found], indent=indent))
        for sentence in (*killed, unreadable.sentence):
            complain_once(sentence)
        return True
    if not found and not killed and not unreadable.sentence:
        click.echo("No job is running." if is_running else "There are no jobs.")
    if found:
        show_table(
            ("JOB", "PHASE", "GENERATION", "NODES", "WORKERS", "CHANGES", "AGE", "BY", "MESSAGE"),
            [_job_row(report) for report in found],
        )
    for sentence in filter(None, (*killed, unreadable.sentence)):
        click.echo(sentence)
    return True


def _show_one(values: dict[str, Any], job: str, *, is_json: bool, indent: int | None) -> bool:
    """Print one job; return whether the job may still change."""
    unreadable = UnreadableRecords()
    with job_source(values, job) as (source, name):
        reports = [report_of(source, name)]
        (report,) = with_elsewhere(source.store, source.keys, reports, unreadable)
        ranks = read_ranks(source.store, source.keys, report, source.settings)
        trouble = _trouble(source, report)
    if is_json:
        more = {"progress": to_plain(ranks), "trouble": trouble}
        click.echo(json.dumps({**status_plain(report), **more}, indent=indent))
        complain_once(unreadable.sentence)
    else:
        show_job(report, ranks)
        for sentence in filter(None, (trouble, unreadable.sentence)):
            click.echo(sentence)
    return not report.status.phase.is_final


def _trouble(source: RecordSource, report: JobReport) -> str:
    """Ask the next proposers which of their writes etcd refuses."""
    from elasticd.control.logs.output import HttpFetch

    if source.is_archive or report.status.phase.is_final or report.world is None:
        return ""
    fetch = HttpFetch(source.settings, timeout_s=TROUBLE_TIMEOUT_S)
    for place in report.world.nodes[:PROPOSERS]:
        item = source.store.get(source.keys.node(place.node))
        for node in readable_nodes([item] if item else (), source.keys, UnreadableRecords()):
            if sentence := fetch.trouble(node):
                return f"node {place.node} cannot write to etcd: {sentence}"
    return ""


def status_plain(report: JobReport) -> dict[str, object]:
    """Return a job for JSON."""
    return {
        "job": report.spec.name,
        "spec": to_plain(report.spec),
        "status": to_plain(report.status),
        "world": to_plain(report.world),
        "members": to_plain(report.members),
        "wants": to_plain(report.wants),
        "results": to_plain(report.results),
        "late": to_plain(report.late),
        "target_nodes": report.target_nodes,
        "size_want": to_plain(report.size_want),
        "autoscaler": summary(report),
        "message": report.message,
    }


def _job_row(report: JobReport) -> tuple[str, ...]:
    at_unix_s = report.spec.submitted_at_unix_s
    world = report.world if report.status.phase is Phase.RUNNING else None
    return (
        report.spec.name,
        report.status.phase.value,
        str(report.status.generation),
        f"{len(world.nodes) if world else 0}/{report.target_nodes}",
        str(world.size if world else 0),
        str(report.status.restarts),
        words.duration(time.time() - at_unix_s) if at_unix_s else "",
        report.spec.submitted_by,
        report.message,
    )


def show_job(report: JobReport, ranks: Sequence[RankProgress]) -> None:
    """Print the state of one job."""
    spec, current = report.spec, report.status
    command = " ".join((spec.entry, *spec.args))
    click.echo(f"job {spec.name}: {current.phase}, generation {current.generation}")
    if report.message:
        click.echo(report.message)
    click.echo(f"runs: {command}")
    for line in words.age_lines(report, time.time()):
        click.echo(line)
    click.echo(
        f"nodes: {spec.min_nodes}:{spec.max_nodes}, wanted {report.target_nodes}; "
        f"workers on each: {spec.workers_per_node or 'as many as it has slots'}"
    )
    for line in status_lines(report):
        click.echo(line)
    used, limits = current.budget, spec.limits
    click.echo(
        f"changes of world: {current.restarts}; of the budget: script errors {used.user_error}/"
        f"{limits.user_error}, losses {used.node_loss}/{limits.node_loss}; "
        "a world that lasts gives them back"
    )
    counted = words.training_lines(report) if current.phase.is_final else []
    for line in (*words.standing(ranks), *words.checkpoint_lines(spec, ranks), *counted):
        click.echo(line)
    for line in (*late_now(report.late_now), *_full_disks(report, ranks)):
        click.echo(line)
    if report.world is not None and not current.phase.is_final:
        ready = {member.node: member for member in report.members}
        pids = {rank.rank: rank.pid for rank in ranks if rank.pid}
        show_table(
            ("NODE", "HOST", "RANKS", "PROCESSES", "STATE"),
            [
                (
                    node.node,
                    node.host,
                    _span(node.first_rank, len(node.workers)),
                    _numbers(pids, range(node.first_rank, node.first_rank + len(node.workers))),
                    _state(node.node in ready, report, node.node),
                )
                for node in report.world.nodes
            ],
        )
    if current.failure is not None and current.phase is not Phase.SUCCEEDED:
        for line in words.failure_lines(current.failure):
            click.echo(line)


def _full_disks(report: JobReport, ranks: Sequence[RankProgress]) -> Iterator[str]:
    """Yield a sentence for each node whose workers find no room for what they write."""
    free = {rank.rank: rank.output_free_bytes for rank in ranks}
    for node in report.world.nodes if report.world is not None else ():
        of_node = range(node.first_rank, node.first_rank + len(node.workers))
        told = [each for at in of_node if (each := free.get(Rank(at))) is not None]
        if told and min(told) < FULL_BYTES:
            rest = words.size_of(min(told)) if min(told) else "nothing"
            yield (
                f"node {node.node}: {rest} is left on the disk to which its workers write; lines "
                "that find no room are dropped"
            )


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _numbers(pids: Mapping[Rank, int], ranks: range) -> str:
    """Return the process numbers in the order of the ranks; empty if the node did not answer."""
    known = [str(pids.get(Rank(rank), "?")) for rank in ranks]
    return " ".join(known) if set(known) != {"?"} else ""


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

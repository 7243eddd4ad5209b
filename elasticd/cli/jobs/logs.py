"""`elasticd logs`: prints the output of the workers."""

import difflib
from typing import Any

import click

from elasticd.cli.jobs.follow import follow_job
from elasticd.cli.jobs.log_reader import print_logs
from elasticd.cli.jobs.options import json_options, report_of
from elasticd.cli.parse_value import at_least, moment
from elasticd.cli.progress.screen import Screen
from elasticd.cli.record_source import job_source
from elasticd.control.logs.console import RankChoice
from elasticd.control.logs.log_slice import LogSlice
from elasticd.control.report.report import JobReport
from elasticd.errors import CallError, NotFound
from elasticd.records.ids import NodeId, checked_name
from elasticd.records.world import World

__all__ = ["logs"]


@click.command()
@click.argument("job", required=False)
@click.option("-f", "--follow", is_flag=True, help="Continue until the job ends.")
@click.option("--rank", type=at_least(0), multiple=True, help="[0]; may be repeated.")
@click.option(
    "--node",
    metavar="NODE",
    help="Show the ranks that this node has in the newest world, instead of --rank.",
)
@click.option("--generation", type=at_least(1), help="[all]")
@click.option(
    "--tail", "lines", type=at_least(0), metavar="N", help="Show only the last N lines.  [all]"
)
@click.option(
    "--since",
    type=moment,
    metavar="TIME",
    help="Show only what was written since then: 10m (ten minutes ago), or 2026-11-23T14:02.",
)
@click.option("--timestamps", "has_stamps", is_flag=True, help="Show the time before each line.")
@json_options
def logs(
    job: str | None,
    follow: bool,
    rank: tuple[int, ...],
    node: str | None,
    generation: int | None,
    lines: int | None,
    since: float | None,
    has_stamps: bool,
    is_json: bool,
    **values: Any,
) -> int:
    """Print what a job's workers wrote: stdout to stdout, stderr to stderr.

    Without JOB it shows the newest local run. Times are by the node's clock, exact to two seconds.
    """
    wanted = LogSlice(lines=lines, since_unix_s=since, has_stamps=has_stamps)
    on = NodeId(checked_name("node", node)) if node is not None else None
    if on is not None and rank:
        raise CallError("--rank and --node both say which ranks: leave one of them out.")
    for flag, is_given in (("--json", is_json), ("--generation", generation is not None)):
        if follow and is_given:
            raise CallError(
                f"{flag} is for output that exists already: leave it out with --follow."
            )
    with job_source(values, job) as (source, job_name):
        report = report_of(source, job_name)
        if on is not None:
            _check_node(report, on)
        if follow and not report.status.phase.is_final:
            follow_job(
                values,
                source,
                report,
                lambda world: RankChoice(ranks=frozenset(_ranks(rank, on, world))),
                Screen(),
                wanted=wanted,
                needs_reader=True,
            )
        else:
            ranks = _ranks(rank, on, report.world)
            print_logs(source, report, ranks, generation, wanted=wanted, node=on, is_json=is_json)
    return 0


def _ranks(ranks: tuple[int, ...], node: NodeId | None, world: World | None) -> tuple[int, ...]:
    """Return the ranks to show: the named ranks, or the ranks of a node in this world."""
    if node is None:
        return ranks or (0,)
    here = world.node(node) if world is not None else None
    if here is None:
        return ()
    return tuple(range(here.first_rank, here.first_rank + len(here.workers)))


def _check_node(report: JobReport, node: NodeId) -> None:
    """Check that the node belongs to the job's newest world.

    Raises: NotFound: the node does not; the message names the nodes that do.
    """
    known = [each.node for each in report.world.nodes] if report.world is not None else []
    if node not in known:
        near = difflib.get_close_matches(node, known, n=3) or known[:5]
        there = f"it has {', '.join(near)}" if near else "it has none yet"
        raise NotFound(
            f"Job {report.spec.name!r} has no rank on a node {node!r}: {there}; `elasticd status "
            f"{report.spec.name}` shows them."
        )

"""`elasticd nodes`: the machines with their slots and jobs, and those that were lost lately."""

import json
import time
from collections.abc import Sequence
from typing import Any

import click

from elasticd.cli.jobs.late_words import late_share
from elasticd.cli.jobs.options import json_options
from elasticd.cli.main import complain
from elasticd.cli.record_source import sources
from elasticd.cli.terminal import words
from elasticd.cli.terminal.table import show_table
from elasticd.control.report.lost_nodes import LostNode, lost_nodes
from elasticd.control.report.node_report import NodeReport, node_reports
from elasticd.control.report.occupancy import read_uses
from elasticd.control.report.report import job_reports
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.records.codec import to_plain

__all__ = ["nodes"]

NONE = "There are no nodes: `elasticd agent --etcd ...` on a machine makes it one."
NONE_YET = "No node of the run in progress has registered yet."
NONE_IN_PROGRESS = (
    "No local run is in progress, so there are no nodes now: `elasticd why JOB` tells of the nodes "
    "of one that is over."
)
NONE_LOST = "No job lost a node in the last day."
NONE_LOST_IN_PROGRESS = (
    "No local run is in progress: `elasticd why JOB` tells which nodes one that is over has lost."
)


@click.command()
@click.option(
    "--lost", "is_lost", is_flag=True, help="Show only the nodes that were lost recently."
)
@json_options
def nodes(is_lost: bool, is_json: bool, **values: Any) -> int:
    """Show the nodes of a cluster (--etcd), otherwise those of the local runs in --log-dir.

    It also shows nodes that a job lost in the last day and that have not come back.
    """
    found: list[NodeReport] = []
    lost: list[LostNode] = []
    unreadable = UnreadableRecords()
    none, none_lost = NONE_IN_PROGRESS, NONE_LOST_IN_PROGRESS
    with sources(values) as opened:
        for source in opened:
            if not source.is_archive:
                none = NONE if source.settings is not None else NONE_YET
                none_lost = NONE_LOST
                store, keys = source.store, source.keys
                reports = job_reports(store.list(keys.jobs).items, keys, unreadable)
                here = node_reports(
                    store.list(keys.nodes).items,
                    store.list(keys.drains).items,
                    keys,
                    unreadable,
                    read_uses(store, keys, unreadable),
                    late=[late for report in reports for late in report.late_now],
                )
                found += here
                names = {report.node.node for report in here}
                lost += lost_nodes(reports, names, now_unix_s=time.time())
    if unreadable.sentence:
        complain(unreadable.sentence)
        none, none_lost = "", ""
    if is_json:
        plain = to_plain(lost) if is_lost else [_plain(report) for report in found]
        click.echo(json.dumps(plain, indent=2))
        return 0
    if is_lost:
        found = []
    elif not found and none:
        click.echo(none)
    if found:
        show_table(
            ("NODE", "HOST", "ADDRESS", "SLOTS", "USED", "FREE", "JOBS", "STATE", *_MORE),
            [_row(report) for report in found],
        )
        click.echo(_sum(found))
    for each in lost:
        ago = words.duration(time.time() - each.at_unix_s)
        click.echo(f"lost: {each.node}, {ago} ago, by job {each.job}: {words.because(each.reason)}")
    if is_lost and not lost and none_lost:
        click.echo(none_lost)
    return 0


_MORE = ("VERSION", "LABELS")


def _sum(found: Sequence[NodeReport]) -> str:
    slots, free = sum(r.node.slots for r in found), sum(r.free_slots for r in found)
    jobs = {use.job for report in found for use in report.uses}
    return (
        f"{words.counted(len(found), 'node')}, {words.counted(slots, 'slot')}: {slots - free} used "
        f"by {words.counted(len(jobs), 'job')}, {free} free"
    )


def _plain(report: NodeReport) -> object:
    plain = to_plain(report)
    assert isinstance(plain, dict)
    return {**plain, "free_slots": report.free_slots, "used_slots": report.used_slots}


def _row(report: NodeReport) -> tuple[str, ...]:
    node = report.node
    state = "draining" if report.is_drained or node.is_draining else "ready"
    if report.late is not None:
        state += f", {late_share(report.late.ratio)}"
    return (
        node.node,
        node.host,
        node.address,
        str(node.slots),
        str(report.used_slots),
        str(report.free_slots),
        ", ".join(use.job if use.is_training else f"{use.job} (waits)" for use in report.uses),
        state,
        node.version,
        ", ".join(f"{key}={value}" for key, value in node.labels.items()),
    )

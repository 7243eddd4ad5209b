"""`elasticd autoscale explain`: the decisions about a job's size, their data and reasons."""

import json
import time
from typing import Any

import click

from elasticd.autoscale.explain.curve_table import CURVE_HEADS
from elasticd.autoscale.explain.explanation import explain_plain, explain_sections
from elasticd.autoscale.explain.leader_text import leader_sentence
from elasticd.cli.jobs.options import json_options, report_of
from elasticd.cli.record_source import RecordSource, job_source
from elasticd.cli.terminal.table import show_table
from elasticd.control.report.report import JobReport
from elasticd.errors import NotSupported
from elasticd.records.autoscale.leader import Leader
from elasticd.records.codec import decode, to_plain

__all__ = ["explain", "leader_of", "tell_explanation"]

DECISIONS_SHOWN = 5


@click.command()
@click.argument("job", required=False)
@click.option(
    "--last",
    type=click.IntRange(0),
    default=DECISIONS_SHOWN,
    show_default=True,
    metavar="N",
    help="Show this many decisions, the newest first; 0: all.",
)
@json_options
def explain(job: str | None, last: int, is_json: bool, **values: Any) -> int:
    """Show what a job's policy asks for, each decision, its reason, and its result.

    It also works for a job that is over. Without JOB it shows the newest local run.
    """
    with job_source(values, job) as (source, name):
        report = report_of(source, name)
        leader = leader_of(source)
    if is_json:
        plain = explain_plain(report, last=last, now_unix_s=time.time())
        plain["leader"] = to_plain(leader)
        click.echo(json.dumps(plain, indent=2))
        return 0
    tell_explanation(report, leader_sentence(leader), last=last)
    return 0


def tell_explanation(report: JobReport, leader: str, *, last: int) -> None:
    """Print the explanation.

    `leader` is a sentence about which process leads; `last` is the number of decisions to print, 0
    for all.
    """
    now_unix_s = time.time()
    for section in explain_sections(report, leader=leader, last=last, now_unix_s=now_unix_s):
        for line in section.lines:
            click.echo(line)
        if section.rows:
            show_table(CURVE_HEADS, section.rows)


def leader_of(source: RecordSource) -> Leader | None:
    """Return the leading process; None if no process leads or its record is of a newer version."""
    item = source.store.get(source.keys.autoscaler_election) if not source.is_archive else None
    try:
        return decode(Leader, item.value) if item is not None else None
    except NotSupported:
        return None

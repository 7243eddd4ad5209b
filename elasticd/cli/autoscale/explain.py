"""`elasticd autoscale explain`: what was decided about a job's size, on what, and why."""

import json
import time
from typing import Any

import click

from elasticd.autoscale.explain.curve_table import CURVE_HEADS
from elasticd.autoscale.explain.explanation import explain_plain, explain_sections
from elasticd.autoscale.explain.leader_text import leader_sentence
from elasticd.cli.jobs.options import json_options, report_of
from elasticd.cli.source import Source, job_source
from elasticd.cli.table import show_table
from elasticd.errors import NotSupported
from elasticd.records.autoscale.leader import Leader
from elasticd.records.codec import decode, to_plain

__all__ = ["explain"]

DECISIONS_SHOWN = 5


@click.command()
@click.argument("job", required=False)
@click.option(
    "--last",
    type=click.IntRange(0),
    default=DECISIONS_SHOWN,
    show_default=True,
    metavar="N",
    help="Tell of so many decisions, the newest; 0: of all that are kept.",
)
@json_options
def explain(job: str | None, last: int, is_json: bool, **values: Any) -> int:
    """Tell what a job's policy asks for, what was decided and why, and what came of it.

    Also of a job that is over. Without JOB: of the newest local run.
    """
    with job_source(values, job) as (source, name):
        report = report_of(source, name)
        leader = _leader(source)
    now_unix_s = time.time()
    if is_json:
        plain = explain_plain(report, leader=to_plain(leader), last=last, now_unix_s=now_unix_s)
        click.echo(json.dumps(plain, indent=2))
        return 0
    said = leader_sentence(leader)
    for section in explain_sections(report, leader=said, last=last, now_unix_s=now_unix_s):
        for line in section.lines:
            click.echo(line)
        if section.rows:
            show_table(CURVE_HEADS, section.rows)
    return 0


def _leader(source: Source) -> Leader | None:
    """Read who leads; None: nobody does, or a newer version that this one cannot read."""
    item = source.store.get(source.keys.autoscaler_election) if not source.is_archive else None
    try:
        return decode(Leader, item.value) if item is not None else None
    except NotSupported:
        return None

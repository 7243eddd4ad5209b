"""`elasticd why`: shows the changes of a job and its time account."""

import json
import time
from collections.abc import Sequence
from typing import Any

import click

from elasticd.autoscale.explain.curve_table import CURVE_HEADS
from elasticd.autoscale.explain.explanation import explain_plain, why_sections
from elasticd.cli.incident_stacks import local_stacks_by_change
from elasticd.cli.jobs.late_words import late_history
from elasticd.cli.jobs.options import json_options, report_of
from elasticd.cli.record_source import job_source
from elasticd.cli.terminal import words
from elasticd.cli.terminal.table import show_table
from elasticd.cli.terminal.time_words import time_rows, time_sentence
from elasticd.cli.why.earlier_changes import EarlierChanges, earlier_lines, read_earlier
from elasticd.cli.why.page import why_page
from elasticd.control.progress import read_progress
from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.report import JobReport
from elasticd.control.report.trace import chrome_trace
from elasticd.errors import CallError
from elasticd.records.account.progress import RankProgress
from elasticd.records.codec import to_plain

__all__ = ["change_plain", "tell_sizes", "tell_why", "why"]

NOTHING = EarlierChanges()
DECISIONS_SHOWN = 10
"""The number of shown decisions; `elasticd autoscale explain --last 0` shows all."""


@click.command()
@click.argument("job", required=False)
@click.option(
    "--trace", "trace_path", metavar="FILE", help="Write the changes to this file, for Perfetto."
)
@click.option(
    "--html", "html_path", metavar="FILE", help="Write everything to this file, as one page."
)
@json_options
def why(
    job: str | None,
    is_json: bool,
    trace_path: str | None,
    html_path: str | None,
    **values: Any,
) -> int:
    """Show what changed in a job, for what reason, which rank failed first, and what it cost.

    Without JOB it shows the newest local run. With --trace or --html it prints nothing, unless
    --json is given, too.
    """
    with job_source(values, job) as (source, name):
        report = report_of(source, name)
        ranks = read_progress(source.store, source.keys, report, source.settings)
        stacks = local_stacks_by_change(source, report) if html_path is not None else {}
        is_cluster = source.settings is not None
        earlier = read_earlier(report, source.run_folder, is_cluster=is_cluster)
    if html_path is not None:
        _write(why_page(report, time.time(), stacks, earlier), html_path, "page", "--html")
        click.echo(f"Wrote {html_path}.", err=is_json)
    if trace_path is not None:
        trace = chrome_trace(name, report.changes, report.incidents)
        _write(json.dumps(trace), trace_path, "trace", "--trace")
        told = f"Wrote {trace_path}: https://ui.perfetto.dev and chrome://tracing open it."
        click.echo(told, err=is_json)
    if is_json:
        plain = {
            "job": name,
            "status": to_plain(report.status),
            "changes": [change_plain(change) for change in report.changes],
            "earlier_changes": to_plain(earlier),
            "late": to_plain(report.late),
            "progress": to_plain(ranks),
            "account": report.time.plain if report.time is not None else None,
            "autoscale": _autoscale(report),
        }
        click.echo(json.dumps(plain, indent=2))
    elif html_path is None and trace_path is None:
        tell_why(report, ranks, earlier)
    return 0


def tell_why(
    report: JobReport, ranks: Sequence[RankProgress], earlier: EarlierChanges = NOTHING
) -> None:
    """Print the changes and the account; `earlier` has sums of changes that etcd no longer has."""
    for line in earlier_lines(report, earlier):
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
        if cost := words.change_cost(change):
            click.echo(f"          {cost}")
        if change.unnoticed_s:
            idle = words.seconds(change.unnoticed_s)
            click.echo(f"          before that no step had ended for {idle}")
        if change.step is not None:
            click.echo(f"          {words.progress(change)}")
    for line in late_history(report.late, is_over=report.status.phase.is_final):
        click.echo(line)
    tell_sizes(report)
    click.echo(words.standing_of(report))
    for line in (*words.standing(ranks), *words.training_lines(report)):
        click.echo(line)
    if words.is_failed(report.status) and report.status.failure is not None:
        for line in words.failure_lines(report.status.failure):
            click.echo(line)
    if report.time is not None:
        show_table(("CAUSE", "SLOT-SECONDS", "SHARE"), time_rows(report.time))
        click.echo(time_sentence(report.time))


def tell_sizes(report: JobReport) -> None:
    """Print the autoscaler's measurements and decisions; nothing for a job without a policy."""
    for section in why_sections(report, last=DECISIONS_SHOWN):
        for line in section.lines:
            click.echo(line)
        if section.rows:
            show_table(CURVE_HEADS, section.rows)


def _autoscale(report: JobReport) -> object:
    if report.autoscaling is None:
        return None
    return explain_plain(report, last=0, now_unix_s=time.time())


def _write(text: str, path: str, what: str, flag: str) -> None:
    try:
        # A traceback may contain a file name with undecodable bytes.
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise CallError(
            f"The {what} cannot be written to {path!r} ({why}): choose another {flag}."
        ) from exc


def change_plain(change: ChangeReport) -> object:
    """Return a change for JSON, with its sums."""
    plain = to_plain(change)
    assert isinstance(plain, dict)
    return {**plain, "total_s": change.total_s, "slot_s": round(change.slot_s, 2)}

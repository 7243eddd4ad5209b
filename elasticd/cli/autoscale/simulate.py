"""`elasticd autoscale simulate`: shows the effect that another policy would have had on a job."""

import json
import os
import tempfile
import time
from contextlib import suppress
from typing import Any

import click

from elasticd.autoscale.explain.decision_text import decision_line, outcome_sentence
from elasticd.autoscale.explain.quantity import clock, number, span
from elasticd.autoscale.gallery.trace_picture import trace_picture
from elasticd.autoscale.loop.queries import queries_of
from elasticd.autoscale.policy_file.document import document
from elasticd.autoscale.policy_file.parser import parsed
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.autoscale.simulator.past import JobPast
from elasticd.autoscale.simulator.replay import JobHistory, Size, replay, simulated_policy
from elasticd.cli.autoscale.prometheus_flags import prometheus_options, prometheus_settings
from elasticd.cli.jobs.options import json_options, report_of
from elasticd.cli.parse_value import not_empty
from elasticd.cli.record_source import job_source
from elasticd.cli.terminal.table import show_table
from elasticd.control.report.report import JobReport
from elasticd.errors import CallError, Refused
from elasticd.records.autoscale.policy import Policy
from elasticd.records.codec import to_plain

__all__ = ["simulate"]


@click.command()
@click.argument("job")
@click.argument("policy", metavar="POLICY.TOML")
@click.option(
    "--svg",
    "svg_path",
    metavar="FILE",
    type=not_empty,
    help="Write a picture of the simulation to this file.",
)
@prometheus_options
@json_options
def simulate(job: str, policy: str, is_json: bool, svg_path: str | None, **values: Any) -> int:
    """Simulate another policy for a job, from what that job has measured.

    It also works for a job that is over, and changes nothing. [target], [idle] and a [budget] with
    a price need --prometheus: it is asked what their queries answered while the job ran.
    """
    prometheus = prometheus_settings(values)
    text = document(policy)
    parsed(text, file=policy, now_unix_s=time.time())  # An error in the policy is reported first.
    if svg_path is not None:
        _check_place(svg_path)  # A simulation of a day takes some seconds.
    with job_source(values, job) as (source, name):
        report = report_of(source, name)
    history = _history(report)
    # `within` counts from the moment at which the policy is set: here, from the job's begin.
    read = parsed(text, file=policy, now_unix_s=history.began_unix_s)
    past = _past(read, history, prometheus)
    possible, told = simulated_policy(read, past)
    trace = replay(history, possible, past)
    notes = [*told, *trace.notes]
    began_s = history.began_unix_s
    if svg_path is not None:
        title = f"{name} with {policy}, simulated on its own curve"
        _write(trace_picture(trace, title=title), svg_path)
    if is_json:
        plain = {
            "job": name,
            "began_unix_s": began_s,
            "was": {"steps": history.steps, "node_hours": history.node_hours},
            "would_be": {"steps": trace.steps, "node_hours": trace.node_hours},
            "decisions": to_plain(trace.decisions),
            "points": to_plain(trace.points),
            "notes": notes,
        }
        click.echo(json.dumps(plain, indent=2))
        return 0
    for decision in trace.decisions:
        at = clock(began_s + decision.at_unix_s)
        click.echo(f"{at}  {decision_line(decision, has_clock=False)}")
        click.echo(f"          {outcome_sentence(decision)}")
    if not trace.decisions:
        click.echo("it would have decided nothing")
    lasted_s = trace.points[-1].at_s
    rows = [
        _row("as it was", history.steps, history.node_hours, history.lasted_s),
        _row(f"with {policy}", trace.steps, trace.node_hours, lasted_s),
    ]
    show_table(("", "LASTED", "STEPS", "STEPS/S", "NODE-HOURS", "STEPS/NODE-HOUR"), rows)
    for note in notes:
        click.echo(f"note: {note}")
    return 0


def _past(
    policy: Policy, history: JobHistory, prometheus: PrometheusSettings | None
) -> JobPast | None:
    """Return the job's past; None if no Prometheus was named or the policy needs no past."""
    if prometheus is None or not (queries_of(policy, history.job) or policy.idle):
        return None
    from elasticd.cli.autoscale.job_past import job_past  # urllib3, ssl

    return job_past(policy, history, prometheus)


def _history(report: JobReport) -> JobHistory:
    """Return the part of the report that a simulation needs.

    Raises: Refused: the job has no curve, or never had a world.
    """
    found, name = report.autoscaling, report.spec.name
    if found is None or found.curve is None or not report.changes:
        raise Refused(
            f"Job {name!r} has no curve that could be simulated on: give it a policy (with dry_run "
            "= true, if nothing is to be done) and wait for two windows."
        )
    told_s = report.time.at_unix_s if report.time is not None else 0.0
    last_s = max(told_s, report.changes[-1].at_unix_s)
    is_over = report.status.phase.is_final
    return JobHistory(
        job=name,
        min_nodes=report.spec.min_nodes,
        max_nodes=report.spec.max_nodes,
        curve=found.curve,
        sizes=tuple(Size(at_unix_s=each.at_unix_s, nodes=each.nodes) for each in report.changes),
        end_unix_s=last_s if is_over else time.time(),
        steps=report.training.steps if report.training is not None else report.step,
        decisions=found.decisions,
    )


def _row(name: str, steps: float, node_hours: float, lasted_s: float) -> tuple[str, ...]:
    return (
        name,
        span(lasted_s),
        f"{round(steps)}",
        f"{steps / lasted_s:.3g}" if lasted_s > 0.0 else "",
        number(round(node_hours, 3)),
        f"{steps / node_hours:.4g}" if node_hours > 0.0 else "",
    )


def _check_place(path: str) -> None:
    """Refuse a file that cannot be written. An existing file stays as it is, no file is left.

    Raises: CallError: the file cannot be written; the message says why.
    """
    try:
        with suppress(FileNotFoundError):
            # Without O_NONBLOCK the call would wait for the reader of a pipe.
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC))
            return
        made = os.path.realpath(path) if os.path.islink(path) else path
        tempfile.TemporaryFile(dir=os.path.dirname(made) or ".").close()
    except (OSError, ValueError) as exc:
        raise _unwritten(path, exc) from exc


def _write(text: str, path: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as exc:
        raise _unwritten(path, exc) from exc


def _unwritten(path: str, exc: OSError | ValueError) -> CallError:
    why = exc.strerror if isinstance(exc, OSError) else exc
    return CallError(f"The picture cannot be written to {path!r} ({why}): choose another --svg.")

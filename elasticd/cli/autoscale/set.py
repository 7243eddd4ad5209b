"""`elasticd autoscale set`: gives a running job a policy, or another policy."""

import time
from dataclasses import replace
from typing import Any

import click

from elasticd.autoscale.direct.query_metric import wanted
from elasticd.autoscale.explain.policy_text import policy_rules
from elasticd.autoscale.explain.size_wishes import size_sentence
from elasticd.autoscale.loop.queries import queries_of
from elasticd.autoscale.policy_file.document import document
from elasticd.autoscale.policy_file.job_check import checked, rules_by_steps
from elasticd.autoscale.policy_file.parser import parsed
from elasticd.autoscale.prometheus.settings import PrometheusSettings
from elasticd.cli.autoscale.explain import leader_of
from elasticd.cli.autoscale.prometheus_flags import prometheus_options, prometheus_settings
from elasticd.cli.autoscale.running_job import running_report
from elasticd.cli.jobs.change.command_report import CommandReport, change_options
from elasticd.cli.machine import submitter
from elasticd.cli.record_source import job_source
from elasticd.control.job_policy import set_policy
from elasticd.control.report.report import JobReport
from elasticd.errors import CallError, Refused
from elasticd.records.autoscale.leader import Leader
from elasticd.records.autoscale.policy import Policy
from elasticd.records.codec import to_plain
from elasticd.records.reason import Phase

__all__ = ["set_"]


@click.command("set")
@click.argument("job")
@click.argument("policy", metavar="POLICY.TOML")
@prometheus_options
@change_options
def set_(job: str, policy: str, is_dry_run: bool, is_json: bool, **values: Any) -> int:
    """Give a job a policy, or another one; it counts from the next evaluation on.

    With --prometheus it asks each query of the policy once. If Prometheus refuses one, it prints
    Prometheus' answer and sets nothing. It also sets nothing if the leading autoscaler has no
    Prometheus and a query is not a metric of the agents. Jobs in restart mode are resized only if
    the policy has allow_restarts = true.
    """
    said = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    prometheus = prometheus_settings(values)
    now_unix_s = time.time()
    read = parsed(document(policy), file=policy, now_unix_s=now_unix_s)
    with job_source(values, job) as (source, name):
        report = running_report(source, name)
        _check(read, report, now_unix_s)
        found = replace(
            read, uid=report.spec.uid, set_by=submitter(), set_at_unix_s=round(now_unix_s, 3)
        )
        _answerable(found, name, leader_of(source))
        notes = [*_asked(found, name, prometheus), *_notes(found, report)]
        if not is_dry_run:
            set_policy(source.store, source.keys, report.spec, found)
    rules = ", ".join(policy_rules(found))
    said(f"job {name} has a policy ({rules})", job=name, policy=to_plain(found), notes=notes)
    if not is_json:
        for note in notes:
            click.echo(f"note: {note}", err=True)
    return 0


def _answerable(policy: Policy, job: str, leader: Leader | None) -> None:
    """Check that the leader can ask the policy's queries.

    Raises: Refused: the leader has no Prometheus, and a query needs one.
    """
    if leader is None or leader.source != "agents":
        return
    for query in queries_of(policy, job):
        try:
            wanted(query)
        except CallError as exc:
            raise Refused(
                f"{exc} Nothing was set: the autoscaler that leads, {leader.name}, was started "
                "without --prometheus."
            ) from exc


def _asked(policy: Policy, job: str, settings: PrometheusSettings | None) -> list[str]:
    """Ask Prometheus all queries, if a Prometheus was named; return a sentence for each."""
    queries = queries_of(policy, job)
    if not queries:
        return []
    if settings is None:
        return ["nobody was asked whether its queries are right: --prometheus URL does that"]
    from elasticd.cli.autoscale.query_check import check_queries  # urllib3, ssl

    return check_queries(policy, job, settings)


def _check(policy: Policy, report: JobReport, now_unix_s: float) -> None:
    """Check that this policy fits the job.

    Raises: Refused: the policy has no effect, or a wrong effect, for this job.
    """
    checked(
        policy,
        report.spec,
        report.status,
        reports_steps=report.reports_steps,
        now_unix_s=now_unix_s,
    )
    for name, rule in (("deadline", policy.deadline), ("budget", policy.budget)):
        if rule is not None and 0 < rule.steps <= report.step:
            raise Refused(
                f"[{name}] steps = {rule.steps} are made already: job {report.spec.name} is at "
                f"step {report.step}. Give the steps of the whole job, or take the rule out."
            )


def _notes(policy: Policy, report: JobReport) -> list[str]:
    """Return the reasons why the policy has no effect yet, as far as they are known now."""
    notes, is_running = [], report.status.phase is Phase.RUNNING
    by_steps = rules_by_steps(policy)
    if by_steps and report.reports_steps is None and is_running:
        notes.append(
            f"the job has not said yet how many steps it has made: [{by_steps[0]}] waits for that"
        )
    if is_running and not report.is_in_process and not policy.allow_restarts:
        notes.append(
            "the job runs in restart mode: nothing is done unless the policy says "
            "allow_restarts = true"
        )
    want = report.size_want
    if want is not None and want.writer != "autoscaler":
        notes.append(f"nothing is decided while a pin stands: {size_sentence(report)}")
    return notes

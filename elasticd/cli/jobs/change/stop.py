"""`elasticd stop`: a person ends jobs, whose workers may save their state first."""

import time
from typing import Any

import click

from elasticd.cli.etcd_flags import Values
from elasticd.cli.jobs.change.command_report import CommandReport, change_options, each_of
from elasticd.cli.jobs.change.wait_flags import force_option, wait_end_s, wait_options
from elasticd.cli.jobs.wait import REOPEN_S, end_of
from elasticd.cli.record_source import RecordSource, check_live, job_source
from elasticd.control import jobs
from elasticd.control.local_run.session import STOP_SLACK_S
from elasticd.control.report.report import JobReport, read_job
from elasticd.control.state_loss import check_stop
from elasticd.errors import TimedOut, Unavailable
from elasticd.records.codec import to_plain
from elasticd.records.job import UNSERVED_LIMIT_S, JobSpec

__all__ = ["ask_to_stop", "stop"]


@click.command()
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@click.option(
    "--why", "reason", default="elasticd stop", metavar="TEXT", help="Reason, kept with the job."
)
@click.option("--forget", is_flag=True, help="Free the name of a job that no node serves any more.")
@force_option
@wait_options
@change_options
def stop(
    names: tuple[str, ...],
    reason: str,
    forget: bool,
    force: bool,
    is_waiting: bool,
    timeout_s: float | None,
    is_dry_run: bool,
    is_json: bool,
    **values: Any,
) -> int:
    """End jobs: their workers get SIGTERM and the shutdown timeout.

    Jobs that call `elasticd.run` and have --checkpoint save their state first; this command waits
    for it and shows the result. Without --checkpoint such a job is not ended once it has trained,
    unless you give --force. With --wait it returns when the jobs are over.
    """
    output = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    until_s = wait_end_s(is_waiting, timeout_s, at_once="--forget" if forget else "")
    if forget:
        return each_of(names, lambda job: _forget(job, output, values))
    asked: list[tuple[str, JobSpec]] = []

    def ask(job: str) -> None:
        asked.append((job, ask_to_stop(job, reason, output, values, is_forced=force)))

    code = each_of(names, ask)
    for job, spec in asked:  # All jobs save at the same time.
        if not is_dry_run and spec.checkpoint is not None:
            _tell_saved(job, spec, output, values)
    if until_s is None or is_dry_run:
        return code
    uids = {job: spec.uid for job, spec in asked}

    def await_end(job: str) -> None:
        _await_end(job, uids[job], until_s, output, values)

    return each_of([job for job, _ in asked], await_end) or code


def _await_end(job: str, uid: str, until_s: float, output: CommandReport, values: Values) -> None:
    status = end_of(values, job, until_s=until_s, uid=uid)
    if status is None:
        raise TimedOut(
            f"Job {job!r} was asked to stop and is not over: `elasticd status {job}` shows for "
            "what it waits."
        )
    output(f"job {job} is over ({status.phase})", job=job, phase=status.phase.value)


def _forget(job: str, output: CommandReport, values: Values) -> None:
    with job_source(values, job) as (source, name):
        check_live(source, job)
        jobs.end_unserved(source.store, source.keys, name, is_dry_run=output.is_dry_run)
    output(f"job {job} is given up", job=job)


def ask_to_stop(
    job: str, reason: str, output: CommandReport, values: Values, *, is_forced: bool
) -> JobSpec:
    """Write the wish that the job ends, and report it."""
    with job_source(values, job) as (source, name):
        check_live(source, job)
        where = (source.store, source.keys, name)
        if not is_forced:
            check_stop(*where)
        wait_s = 0.0 if is_forced else UNSERVED_LIMIT_S
        spec = jobs.stop(*where, why=reason, is_dry_run=output.is_dry_run, unserved_limit_s=wait_s)
    output(f"job {job} is asked to stop", job=job)
    return spec


def _tell_saved(job: str, spec: JobSpec, output: CommandReport, values: Values) -> None:
    until_s = time.monotonic() + spec.shutdown_timeout_s + STOP_SLACK_S
    while True:
        try:
            with job_source(values, job) as (source, _):
                report = _awaited(source, spec, until_s)
            break
        except Unavailable:
            # A local run has ended, and its archive has what it saved; or a cluster's etcd is away.
            if time.monotonic() >= until_s:
                raise
            time.sleep(REOPEN_S)
    if report is not None and report.saved is not None:
        saved = report.saved
        output(f"job {job} was {saved.sentence}", job=job, saved=to_plain(saved))


def _awaited(source: RecordSource, spec: JobSpec, until_s: float) -> JobReport | None:
    """Return the job's report once its workers have saved their state, if they save it."""
    report = _report(source, spec)
    if report is None or not report.is_in_process or source.is_archive:
        return report
    left_s = max(0.0, until_s - time.monotonic())
    jobs.wait_left(source.store, source.keys, spec.name, timeout_s=left_s)
    return _report(source, spec)


def _report(source: RecordSource, spec: JobSpec) -> JobReport | None:
    """Return the job's report; None if its records are gone, or another job has its name."""
    report = read_job(source.store, source.keys, spec.name)
    return report if report is not None and report.spec.uid == spec.uid else None

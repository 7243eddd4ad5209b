"""`elasticd wait`: waits until jobs are over, and returns their exit code."""

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import click

from elasticd.cli.etcd_flags import Values, where_options
from elasticd.cli.jobs.options import report_of
from elasticd.cli.parse_value import duration_option
from elasticd.cli.record_source import job_source
from elasticd.cli.terminal import words
from elasticd.control.follow import News
from elasticd.control.job_wait import follow_to_end
from elasticd.control.jobs import find_spec, wait_left
from elasticd.control.local_run.session import exit_code
from elasticd.control.report.report import JobReport
from elasticd.errors import TimedOut, Unavailable
from elasticd.records.codec import decode
from elasticd.records.job import JobStatus

__all__ = ["REOPEN_S", "end_of", "final_report", "wait"]

REOPEN_S = 0.2
"""The pause before the records are opened again, between a private etcd's end and its archive."""
ARCHIVE_S = 30.0
"""The time in which an `elasticd run` whose job is over must end its etcd, its agents and itself.
"""


@click.command()
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@duration_option(
    "--timeout", "timeout_s", f"Give up after this, with exit code {TimedOut.exit_code}."
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object a line, for programs.")
@where_options
def wait(names: tuple[str, ...], timeout_s: float | None, is_json: bool, **values: Any) -> int:
    """Wait until jobs are over; return the job's exit code, as `elasticd run` does.

    With several jobs it is the exit code of the first named job that did not succeed. A job may be
    over already.
    """
    until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    code = 0
    # A job that is over while another one is waited for may lose its name to a third one.
    uids = _check_known(values, names) if len(names) > 1 else {}
    for name in names:
        status = end_of(values, name, until_s=until_s, uid=uids.get(name, ""))
        if status is None:
            raise TimedOut(
                f"Job {name!r} is not over after {timeout_s:g} s: it goes on, `elasticd status "
                f"{name}` shows it."
            )
        _tell(name, status, is_json=is_json)
        code = code or exit_code(status)
    return code


def _check_known(values: Values, names: Sequence[str]) -> dict[str, str]:
    """Check that all jobs exist, so that a misspelt name is reported at once and not hours later.

    The uids of those that can be read now are returned.

    Raises: NotFound: a job does not exist.
    """
    uids = {}
    for name in names:
        with suppress(Unavailable), job_source(values, name) as (source, known):
            uids[name] = find_spec(source.store, source.keys, known).uid
    return uids


def end_of(
    values: Values,
    job: str,
    *,
    until_s: float,
    uid: str = "",
    is_given_up: Callable[[], bool] = lambda: False,
    on_news: Callable[[News], None] = lambda news: None,
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> JobStatus | None:
    """Return how the job ended; None if it has not ended at `until_s`, or when `is_given_up`.

    `uid` is the job's; if it is empty, the job that has the name at first is meant, and no later
    one.

    Raises:
        NotFound: there is no such job; or its records were removed or its run was killed during the
            wait, or another job has its name now.
        Unavailable: etcd does not answer at the first call.
    """
    is_known = False
    while True:
        try:
            with job_source(values, job) as (source, name):
                is_known = True
                uid = find_spec(source.store, source.keys, name, uid=uid).uid
                if source.is_archive:
                    item = source.store.get(source.keys.status(name))
                    return decode(JobStatus, item.value) if item is not None else JobStatus()
                is_private = source.settings is None
                status = follow_to_end(
                    source.store,
                    source.keys,
                    name,
                    is_private=is_private,
                    until_s=until_s,
                    uid=uid,
                    has_ended=source.has_ended,
                    is_given_up=is_given_up,
                    on_news=on_news,
                    now_s=now_s,
                )
                if status is not None:
                    return status
        except Unavailable:
            if not is_known:
                raise
        if now_s() >= until_s or is_given_up():
            return None
        pause(REOPEN_S)


def final_report(
    values: Values,
    job: str,
    *,
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> JobReport:
    """Return the report of a finished job once its nodes have left it and written their account.

    In a local run the archive may have replaced the private etcd by then.

    Raises:
        NotFound: the job's records are gone.
        Unavailable: etcd does not answer for a long time.
    """
    until_s = now_s() + ARCHIVE_S
    while True:
        try:
            with job_source(values, job) as (source, name):
                if not source.is_archive:
                    rest_s = max(0.0, until_s - now_s())
                    wait_left(
                        source.store,
                        source.keys,
                        name,
                        timeout_s=rest_s,
                        now_s=now_s,
                        pause=pause,
                    )
                return report_of(source, name)
        except Unavailable:
            if now_s() >= until_s:
                raise
        pause(REOPEN_S)


def _tell(name: str, status: JobStatus, *, is_json: bool) -> None:
    if is_json:
        plain = {
            "job": name,
            "phase": status.phase.value,
            "reason": status.reason.value,
            "message": status.message,
            "exit_code": exit_code(status),
        }
        click.echo(json.dumps(plain))
    else:
        click.echo(words.ending(status).replace("job ", f"job {name} ", 1))

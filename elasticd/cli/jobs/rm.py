"""`elasticd rm`: removes the records of jobs that are over, and with --logs a local run's logs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from elasticd.cli.etcd_flags import Values, keys_of, log_dir_of, open_store, settings_from
from elasticd.cli.jobs.change.command_report import CommandReport, change_options, each_of
from elasticd.cli.record_source import known_runs
from elasticd.cli.terminal import words
from elasticd.control.local_run.run_folder import JobFolder, local_jobs
from elasticd.control.prune import prune
from elasticd.errors import CallError, NotFound
from elasticd.records.ids import JobName, checked_name
from elasticd.store.api import StoreSettings

__all__ = ["rm"]


@click.command()
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@click.option("--logs", "has_logs", is_flag=True, help="Remove the logs of a local run, too.")
@change_options
def rm(
    names: tuple[str, ...], has_logs: bool, is_dry_run: bool, is_json: bool, **values: Any
) -> int:
    """Remove the records of jobs that are over; a job that runs is refused.

    For a job of a cluster it removes the records in etcd; the logs stay on the nodes. For a local
    run it removes the file of records, and with --logs all that elasticd keeps in its folder.
    Checkpoints stay.
    """
    said = CommandReport(is_dry_run=is_dry_run, is_json=is_json)
    settings = settings_from(values, os.environ)
    remove: Callable[[str], None]
    if settings is None:
        run_folder = Path(log_dir_of(values, os.environ) or "elasticd-runs").absolute()

        def remove(name: str) -> None:
            _remove_run(run_folder, JobName(checked_name("job", name)), said, has_logs=has_logs)

    else:
        if has_logs:
            raise CallError(
                "--logs removes those of local runs: a cluster's logs stand on its nodes, under "
                "<run folder>/<job>."
            )

        def remove(name: str) -> None:
            _remove_records(settings, values, JobName(checked_name("job", name)), said)

    return each_of(names, remove)


def _remove_records(
    settings: StoreSettings, values: Values, name: JobName, said: CommandReport
) -> None:
    keys = keys_of(values, os.environ)
    store = open_store(settings, keys)
    try:
        for done in prune(store, keys, [name], is_dry_run=said.is_dry_run):
            count = words.counted(done.records, "record")
            said(f"job {name}: {count} removed", job=name, records=done.records)
    finally:
        store.close()


def _remove_run(run_folder: Path, name: JobName, said: CommandReport, *, has_logs: bool) -> None:
    known = {folder.job: folder for folder in local_jobs(run_folder)}
    folder = known.get(name, JobFolder(run_folder, name))
    if name not in known and not (has_logs and folder.has_logs):
        raise NotFound(
            f"There is no local run {name!r} in {run_folder} ({known_runs(list(known), name)}); "
            "for a cluster's jobs give --etcd, for others --log-dir."
        )
    folder.remove(has_logs=has_logs, is_dry_run=said.is_dry_run)
    rest = "" if has_logs else f"; its logs stay in {folder.path}"
    what = "records and logs" if has_logs else "records"
    said(f"job {name}: its {what} are removed{rest}", job=name, has_logs=has_logs)

"""`elasticd doctor`: checks this machine and its torch, a cluster's etcd and nodes, and a storage.

The result of each check is printed when the check ends. No check starts a job. A check removes
everything that it writes.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from elasticd.checkpoint.storage.location import checked_options, checked_url
from elasticd.cli import parse_value
from elasticd.cli.doctor import etcd_check, machine_check, node_check, storage_check, torch_check
from elasticd.cli.doctor.finding import Finding, Verdict, guarded, lines_of, summary_of
from elasticd.cli.doctor.process_group_check import check_process_group
from elasticd.cli.etcd_flags import keys_of, log_dir_of, open_store, settings_from
from elasticd.cli.jobs.options import json_options
from elasticd.cli.machine import own_address, reachable_address
from elasticd.control.report.unreadable import UnreadableRecords, readable_nodes
from elasticd.errors import CallError
from elasticd.records.keys import Keys
from elasticd.store.api import StoreSettings
from elasticd.telemetry.cgroup import killed_together
from elasticd_agent.worker_setup.gpus import visible_gpus

__all__ = ["doctor"]

LOCAL = "127.0.0.1"
"""The address that workers use in a run on this machine alone."""


@click.command()
@click.option(
    "--checkpoint",
    metavar="URL",
    default=None,
    type=parse_value.not_empty,
    help="Storage of checkpoints to try, as for `run`.",
)
@click.option(
    "--storage-options",
    "--storage_options",
    metavar="JSON",
    envvar="ELASTICD_STORAGE_OPTIONS",
    default="",
    help="Options of the URL's fsspec file system; a secret as env:NAME or file:PATH.",
)
@click.option(
    "--python", metavar="FILE", default=None, help="Interpreter of the workers (also PYTHON_EXEC)."
)
@click.option(
    "--local-addr",
    "--local_addr",
    metavar="ADDR",
    help="Address at which other nodes reach this machine.",
)
@json_options
def doctor(is_json: bool, **values: Any) -> int:
    """Check what a run on this machine needs: memory, torch, a process group; with --etcd the
    cluster's etcd and nodes, with --checkpoint the storage.

    The exit code is 1 if a problem was found.
    """
    found = []
    for finding in _findings(values, os.environ):
        found.append(finding)
        if not is_json:
            click.echo("\n".join(lines_of(finding)))
    if is_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
    else:
        click.echo(summary_of(found))
    return int(any(each.verdict is Verdict.PROBLEM for each in found))


def _findings(values: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings of all checks in order.

    Raises:
        CallError: the call itself is wrong; this is raised before the first finding.
        EnvironmentProblem: the name of --local-addr does not resolve here.
    """
    settings, keys = settings_from(values, environ), keys_of(values, environ)
    given = parse_value.host("--local-addr", values["local_addr"] or "")
    if given and settings is not None:
        reachable_address(given, settings.endpoints)
    url = checked_url(values["checkpoint"]) if values["checkpoint"] else ""
    options = checked_options(values["storage_options"])
    python = _python(values["python"] or environ.get("PYTHON_EXEC", ""))
    folder = Path(log_dir_of(values, environ) or "elasticd-runs").absolute()
    yield from machine_check.check_machine(environ)
    yield from machine_check.check_oom_kills(killed_together())
    yield from guarded("shared memory", machine_check.check_shared_memory)
    yield from machine_check.check_open_files()
    yield from guarded("run folder", lambda: machine_check.check_run_folder(folder))
    address = given or (LOCAL if settings is None else "")
    if not address and settings is not None:
        found: list[str] = []

        def find() -> str:
            found.append(own_address(settings.endpoints))
            return found[-1]

        yield from guarded("address", lambda: machine_check.check_address(find))
        address = "".join(found)
    yield from _of_torch(python, address or LOCAL, len(visible_gpus(environ).names))
    if settings is None:
        yield from guarded("etcd", machine_check.check_private_etcd)
    else:
        yield from _of_cluster(settings, keys)
    if url:
        yield from guarded("storage", lambda: storage_check.check_storage(url, options))


def _of_torch(python: str, address: str, gpus: int) -> Iterator[Finding]:
    report = torch_check.read_torch(python)
    if isinstance(report, Finding):
        yield report
        return
    found = list(torch_check.findings_of(report, gpus))
    yield from found
    if any(each.verdict is Verdict.PROBLEM for each in found):
        return
    yield from guarded("process group", lambda: check_process_group(python, "gloo", address))
    if report.gpus > 1 and report.nccl:
        yield from guarded("process group", lambda: check_process_group(python, "nccl", address))


def _of_cluster(settings: StoreSettings, keys: Keys) -> Iterator[Finding]:
    found = list(etcd_check.check_endpoints(settings, keys))
    yield from found
    if all(each.verdict is Verdict.PROBLEM for each in found):
        return
    yield from guarded("etcd", lambda: etcd_check.check_writes(settings, keys))
    yield from guarded("nodes", lambda: _of_nodes(settings, keys))


def _of_nodes(settings: StoreSettings, keys: Keys) -> Iterator[Finding]:
    unreadable = UnreadableRecords()
    store = open_store(settings, keys)
    try:
        nodes = readable_nodes(store.list(keys.nodes).items, keys, unreadable)
    finally:
        store.close()
    yield from node_check.findings_of(node_check.ask_all(nodes, settings), unreadable)


def _python(given: str) -> str:
    """Return the path of the given interpreter, or of this one if none is given.

    Raises: CallError: there is no such interpreter.
    """
    if not given:
        return sys.executable
    found = shutil.which(given)
    if found is None:
        raise CallError(f"The interpreter {given} was not found: give the path of a python.")
    return found

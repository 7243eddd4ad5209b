"""`elasticd run`: reads the call, checks it, and passes it to `Foreground`."""

import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import click

from elasticd.cli.daemons.agent import make_folder
from elasticd.cli.machine import cpu_count, gpu_count, submitter
from elasticd.cli.run.flags import CONTEXT, parameters
from elasticd.cli.run.request import Mode, read_request
from elasticd.cli.run.script import check_entry, default_job_name
from elasticd.cli.run.storage_flags import check_event_folder
from elasticd.errors import Unavailable
from elasticd.records.codec import to_plain

__all__ = ["run"]

HELP = """Run a training script that runs under torchrun, and keep it running.

Without --etcd: on this machine, with a private etcd. With --etcd: on the daemons of a cluster
(`elasticd agent`). With --join --etcd --job NAME, called on each host as torchrun is: on the hosts
that call it.

All flags of torchrun are taken, with dashes or underscores, also as PET_<FLAG> in the environment;
ours as ELASTICD_<FLAG>. What follows SCRIPT belongs to the script.
"""


def _run(**values: Any) -> int:
    request = read_request(values, os.environ, gpus=gpu_count(os.environ), cpus=cpu_count())
    here = Path.cwd()
    check_entry(request, here)
    folder = here / (request.run_folder or "elasticd-runs")
    name = request.job or default_job_name(
        request.draft,
        time.strftime("%m%d-%H%M%S"),
        folder if request.mode is not Mode.SUBMIT else None,
        secrets.token_hex(2) if request.mode is Mode.SUBMIT else "",
    )
    at_unix_s = round(time.time(), 3)
    spec = request.spec(
        name=name,
        uid=secrets.token_hex(8),
        here=str(here),
        submitter=submitter(),
        at_unix_s=at_unix_s,
    )
    policy = None
    if request.autoscale:
        from elasticd.cli.run.autoscaler.policy import read_policy

        # Whether a cluster's autoscaler has a Prometheus is not known here.
        has_prometheus = bool(request.prometheus) or request.mode is Mode.SUBMIT
        policy = read_policy(request.autoscale, spec, at_unix_s, has_prometheus=has_prometheus)
    if request.is_dry_run:
        click.echo(json.dumps(to_plain(spec), indent=2))
        for note in request.notes:
            click.echo(f"note: {note}", err=True)
        return 0
    if request.bundle is not None:
        from elasticd.cli.bundle.command import check_place
        from elasticd.cli.bundle.failed_run import options_of

        try:
            check_place(request.bundle, "--bundle", options_of(spec, request.bundle), os.environ)
        except Unavailable as exc:
            # The storage may answer when the job fails, so this is no reason to refuse a training.
            click.echo(f"note: {exc}", err=True)
    # These imports are slow (grpc, the processes, the terminal), so they come only now.
    from elasticd.cli.run.foreground import Foreground

    foreground = Foreground(request, spec, folder, os.environ, policy)
    if request.mode is Mode.SUBMIT:
        return foreground.submit()
    make_folder(folder, "run folder", "--log-dir")
    check_event_folder(request.draft.tensorboard)
    return foreground.local() if request.mode is Mode.LOCAL else foreground.join()


run = click.Command(
    "run",
    params=parameters(),
    callback=_run,
    context_settings=CONTEXT,
    help=HELP,
    short_help="Run a training script; takes torchrun's flags.",
    options_metavar="[FLAGS]",
)

"""`elasticd dashboard`: a page in the browser, for a cluster, the runs of this machine, or both."""

import threading
from contextlib import suppress
from typing import Any

import click

from elasticd.cli.etcd_flags import where_options
from elasticd.cli.incident_stacks import read_stacks
from elasticd.cli.parse_value import not_empty
from elasticd.cli.record_source import sources
from elasticd.cli.secrecy import secret_in
from elasticd.cli.views.actions import Actor
from elasticd.cli.views.runs import which_runs
from elasticd.cli.views.sentences import SENTENCES
from elasticd.dashboard.access import is_loopback
from elasticd.dashboard.collector import Collector
from elasticd.dashboard.http_server import DashboardServer
from elasticd.errors import CallError, NotFound, Unavailable
from elasticd_agent.pod.first_process import end_on_signals

__all__ = ["dashboard"]

TOKEN_LEAST = 16
"""The least number of characters of a token; a shorter token could be guessed."""


@click.command()
@click.option(
    "--host",
    metavar="ADDR",
    type=not_empty,
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8900, show_default=True, help="0: any."
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=not_empty,
    help="File with the token that a page must give; needed if --host is not loopback.",
)
@click.option(
    "--allow-actions",
    "can_act",
    is_flag=True,
    help="Let pages scale and stop jobs and drain nodes; needs --token-file.",
)
@where_options
def dashboard(host: str, port: int, token_file: str | None, can_act: bool, **values: Any) -> int:
    """Serve a page with jobs, nodes, timeline, time account and incidents, until Ctrl-C.

    It shows a cluster (--etcd), otherwise the local runs in --log-dir, also those that are over.
    Without a token it listens on loopback only, and without --allow-actions it changes nothing.
    """
    end_on_signals()
    token = _token(token_file)
    if not token and not is_loopback(host):
        raise CallError(
            f"On {host} others can reach the dashboard: give --token-file with a file that has a "
            f"token of at least {TOKEN_LEAST} characters, or leave --host out."
        )
    if can_act and not token:
        raise CallError(
            "--allow-actions lets whoever reaches the dashboard change jobs: give --token-file "
            f"with a file that has a token of at least {TOKEN_LEAST} characters."
        )
    # An error in --etcd is reported before the server listens. A run may start later, and so may an
    # etcd that starts with the rest of a cluster: until then the page says that etcd is away.
    try:
        with suppress(NotFound), sources(values):
            pass
    except Unavailable as exc:
        click.echo(f"elasticd: {exc} The page waits for it.", err=True)
    collector = Collector(
        lambda: sources(values), lambda: which_runs(values), SENTENCES, read_stacks
    )
    try:
        server = DashboardServer(host, port, collector, token, Actor(values) if can_act else None)
        click.echo(f"The dashboard is at {server.url} (Ctrl-C ends it).")
        try:
            threading.Event().wait()
        finally:
            server.close()
    finally:
        collector.close()
    return 0


def _token(path: str | None) -> str:
    """Read the token from its file.

    Raises:
        CallError: the file cannot be read, or the token is too short.
    """
    if path is None:
        return ""
    try:
        token = secret_in(path).strip()
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise CallError(
            f"The token file {path} cannot be read ({why}): give --token-file with a text file "
            "that this user may read."
        ) from exc
    if len(token) < TOKEN_LEAST or not token.isascii() or any(c.isspace() for c in token):
        raise CallError(
            f"The token in {path} has {len(token)} characters: give one word of at least "
            f"{TOKEN_LEAST} ASCII characters, as `openssl rand -hex 16` prints."
        )
    return token

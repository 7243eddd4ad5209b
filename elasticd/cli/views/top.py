"""`elasticd top`: jobs, nodes and changes, twice a second in a terminal."""

import difflib
import os
import sys
import time
from contextlib import suppress
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from elasticd.cli.etcd_flags import where_options
from elasticd.cli.jobs.change.drain import drain
from elasticd.cli.jobs.change.scale import scale
from elasticd.cli.main import complain
from elasticd.cli.parse_value import at_least
from elasticd.cli.progress.terminal_line import can_draw
from elasticd.cli.record_source import sources
from elasticd.cli.terminal.words import counted
from elasticd.cli.views.keyboard import Keyboard
from elasticd.cli.views.runs import which_runs
from elasticd.cli.views.sentences import SENTENCES
from elasticd.cli.views.top_frame import frame
from elasticd.dashboard.board import Board
from elasticd.dashboard.collector import Collector
from elasticd.errors import ElasticdError, NotFound, Unavailable

__all__ = ["top"]

FRAME_S = 0.5
FIRST_S = 15.0
"""The time limit of the first frame: etcd may be far away, and agents may not answer."""


@click.command()
@click.argument("job", required=False)
@click.option("--once", "is_once", is_flag=True, help="Show one frame and end, for scripts.")
@where_options
def top(job: str | None, is_once: bool, **values: Any) -> int:
    """Show jobs, nodes, step rates, where the time goes and what changed, twice a second.

    It shows a cluster (--etcd), otherwise the local runs in --log-dir. JOB is the job whose details
    are shown; the arrow keys choose another. Without a terminal it shows one frame.
    """
    with suppress(NotFound), sources(values):
        pass  # An error in --etcd is reported before the first frame.
    collector = Collector(lambda: sources(values), lambda: which_runs(values), SENTENCES)
    console = Console(highlight=False)
    try:
        board = collector.newer_than(0, FIRST_S)
        if board is None:
            raise Unavailable(f"Nothing could be read within {FIRST_S:g} s: try again.")
        if job is not None and board.jobs and job not in board.pages:
            names = ", ".join(difflib.get_close_matches(job, board.pages) or list(board.pages)[:5])
            raise NotFound(f"There is no job {job!r} (there are: {names}): `elasticd status`.")
        # rich's own test is not used: for rich, FORCE_COLOR makes a file a terminal.
        can_watch = can_draw(sys.stdout, os.environ.get("TERM", "")) and sys.stdin.isatty()
        if is_once or not can_watch:
            if board.trouble and not board.jobs:
                raise NotFound(board.trouble)
            if job is not None and job not in board.pages:
                raise NotFound(
                    f"There is no job {job!r}: there is none at all (`elasticd status`)."
                )
            console.print(_drawn(board, _chosen(board, job), console, has_keys=False))
            return 0
        _watch(collector, board, job, console, values)
    finally:
        collector.close()
    return 0


def _watch(
    collector: Collector, board: Board, job: str | None, console: Console, values: dict[str, Any]
) -> None:
    """Draw frames until the user ends the view."""
    chosen = _chosen(board, job)
    while True:
        with Keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            key = ""
            while key not in ("q", "s", "d"):
                board = collector.newer_than(board.version, 0.0) or board
                chosen = _moved(board, _chosen(board, chosen), key)
                live.update(_drawn(board, chosen, console, has_keys=True), refresh=True)
                key = keys.key(FRAME_S)
        if key == "q":
            return
        _act(key, chosen, values)


def _chosen(board: Board, job: str | None) -> str:
    """Return the job that the user asked for, else the first job that is not over."""
    if job is not None and (job in board.pages or not board.jobs):
        return job
    first = next((row for row in board.jobs if not row["is_over"]), None)
    first = first or next(iter(board.jobs), None)
    return str(first["job"]) if first is not None else ""


def _moved(board: Board, chosen: str, key: str) -> str:
    """Return the job above or below the chosen one, by the pressed key."""
    names = [str(row["job"]) for row in board.jobs]
    by = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key, 0)
    if not by or chosen not in names:
        return chosen
    return names[max(0, min(len(names) - 1, names.index(chosen) + by))]


def _drawn(board: Board, chosen: str, console: Console, *, has_keys: bool) -> Any:
    return frame(
        board,
        chosen,
        width=console.width,
        height=console.height if has_keys else 1_000,
        now_unix_s=time.time(),
        has_keys=has_keys,
    )


def _act(key: str, chosen: str, values: dict[str, Any]) -> None:
    """Ask for an action's values and for confirmation, and carry out the action.

    Any error is printed as a sentence.
    """
    context = click.get_current_context()
    plain = {"is_dry_run": False, "is_json": False, **values}
    try:
        if key == "s":
            nodes = click.prompt(f"Nodes for job {chosen}", value_proc=at_least(1))
            if click.confirm(f"Scale job {chosen} to {counted(nodes, 'node')}?"):
                context.invoke(scale, job=chosen, nodes=nodes, **plain)
        else:
            node = click.prompt("Node to take out of service")
            if click.confirm(f"Drain node {node}?"):
                context.invoke(drain, nodes=(node,), reason="elasticd top", **plain)
    except ElasticdError as exc:
        complain(str(exc))
    except click.Abort:
        click.echo()
        return
    with suppress(click.Abort):
        click.prompt("Enter goes back", default="", show_default=False, prompt_suffix=" ")

"""Redraws a view in a terminal, as `watch` does; programs get one line for each drawing."""

import contextlib
import io
import sys
import time
from collections.abc import Callable

import click

from elasticd.cli.main import complain
from elasticd.errors import CallError, Unavailable

__all__ = ["redraw"]

REDRAW_S = 2.0
_HOME_AND_CLEAR = "\x1b[H\x1b[2J"


class _Picture(io.StringIO):
    """A buffer that claims to be a terminal, so that one drawing is written in one piece."""

    def isatty(self) -> bool:
        return True


def redraw(
    show: Callable[[], bool], *, is_json: bool, pause: Callable[[float], None] = time.sleep
) -> None:
    """Call `show` every two seconds until it returns False, on a cleared screen.

    If etcd does not answer, the error is shown and etcd is asked again: a person who watches a
    cluster wants to see the error, and the state after it.

    Raises:
        CallError: there is no terminal, and JSON lines were not asked for.
    """
    if not is_json and not sys.stdout.isatty():
        raise CallError(
            "--watch draws on a terminal, and there is none: leave it out, or add --json for one "
            "document a line."
        )
    while True:
        drawn, goes_on, trouble = _Picture(), True, ""
        try:
            with contextlib.redirect_stdout(sys.stdout if is_json else drawn):
                goes_on = show()
        except Unavailable as exc:
            trouble = str(exc)
        if not is_json:
            # The last drawing stays on the screen until the next one is complete.
            click.echo(_HOME_AND_CLEAR + time.strftime("%H:%M:%S"))
            click.echo(drawn.getvalue(), nl=False)
        if trouble:
            complain(trouble)
        if not goes_on:
            return
        sys.stdout.flush()
        pause(REDRAW_S)

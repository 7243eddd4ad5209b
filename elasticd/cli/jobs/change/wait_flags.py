"""The flags `--wait`, `--timeout` and `--force` of the commands that change something."""

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from elasticd.cli.parse_value import duration_option
from elasticd.errors import CallError

__all__ = ["force_option", "wait_end_s", "wait_options"]

F = TypeVar("F", bound=Callable[..., Any])

force_option = click.option(
    "--force", is_flag=True, help="Do it even if a job loses what it has trained."
)


def wait_options(command: F) -> F:
    """Add `--wait` and `--timeout` to a command."""
    command = click.option(
        "--wait", "is_waiting", is_flag=True, help="Return when it is done, not when requested."
    )(command)
    return duration_option("--timeout", "timeout_s", "With --wait: return after this.")(command)


def wait_end_s(is_waiting: bool, timeout_s: float | None, *, at_once: str) -> float | None:
    """Return the moment at which a wait ends, on the monotonic clock; None for no wait.

    `at_once` is a flag that needs no wait, if it was given.

    Raises: CallError: the flags contradict each other.
    """
    if at_once and (is_waiting or timeout_s is not None):
        raise CallError(f"{at_once} is done at once: leave out --wait and --timeout.")
    if timeout_s is not None and not is_waiting:
        raise CallError("--timeout says how long to wait: add --wait, or leave it out.")
    if not is_waiting:
        return None
    return math.inf if timeout_s is None else time.monotonic() + timeout_s

"""Numbers and names that come as text, with an error that names the flag."""

import signal
from collections.abc import Callable

import click

from elasticd.errors import CallError

__all__ = ["at_least", "is_signal", "not_empty", "seconds", "whole"]


def at_least(least: int) -> Callable[[str], int]:
    """Make the type of a flag; click's own range calls a letter no "valid integer range"."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError as exc:
            raise click.BadParameter(f"{text!r} is not a whole number") from exc
        if value < least:
            raise click.BadParameter(f"{value} is below {least}, the least that makes sense")
        return value

    return integer


def not_empty(value: str) -> str:
    """Refuse what a variable that is not set leaves behind, as in `--checkpoint "$URL"`."""
    if not value:
        raise click.BadParameter("it is empty: give a value, or leave the flag out")
    return value


def whole(flag: str, text: str | None, default: int, *, least: int) -> int:
    """Read a whole number.

    Raises:
        CallError: it is none, or too small.
    """
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError as exc:
        raise CallError(f"{flag} {text} is not a whole number.") from exc
    if value < least:
        raise CallError(f"{flag} {text} is below {least}, the least that makes sense.")
    return value


def seconds(flag: str, text: str | None, default: float, *, least_s: float = 0.0) -> float:
    """Read a duration in seconds.

    Raises:
        CallError: it is none, shorter than `least_s` or endless.
    """
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError as exc:
        raise CallError(f"{flag} {text} is not a number of seconds.") from exc
    if not least_s <= value < float("inf"):
        raise CallError(f"{flag} {text} is not a duration in seconds, {least_s:g} or more.")
    return value


def is_signal(name: str) -> bool:
    return name.startswith("SIG") and name in signal.Signals.__members__

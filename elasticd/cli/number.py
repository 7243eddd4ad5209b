"""Numbers and names that come as text, with an error that names the flag."""

import signal

import click

from elasticd.errors import CallError

__all__ = ["AtLeast", "is_signal", "seconds", "whole"]


class AtLeast(click.ParamType):
    """A whole number of some size; click's own range calls a letter "no valid integer range"."""

    name = "integer"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            number = int(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if number < self.least:
            self.fail(f"{number} is below {self.least}, the least that makes sense", param, ctx)
        return number


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


def seconds(flag: str, text: str | None, default: float) -> float:
    """Read a duration in seconds.

    Raises:
        CallError: it is none, negative or endless.
    """
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError as exc:
        raise CallError(f"{flag} {text} is not a number of seconds.") from exc
    if not 0 <= value < float("inf"):
        raise CallError(f"{flag} {text} is not a duration in seconds, 0 or more.")
    return value


def is_signal(name: str) -> bool:
    return name.startswith("SIG") and name in signal.Signals.__members__

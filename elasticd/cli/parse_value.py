"""Reads numbers and names from text; an error names the flag."""

import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import click

from elasticd.errors import CallError
from elasticd.store.api import LEAST_LEASE_TTL_S, MOST_LEASE_TTL_S

__all__ = [
    "LAST_PORT",
    "MOST_DIGITS",
    "at_least",
    "check_range",
    "checked_lease_ttl_s",
    "decimal",
    "duration",
    "duration_option",
    "host",
    "moment",
    "not_empty",
    "seconds",
    "signal_of",
    "size",
    "whole",
]

F = TypeVar("F", bound=Callable[..., Any])
LAST_PORT = 65535
MOST_DIGITS = 15
"""The most digits of a whole number: JSON's readers in other languages lose the rest."""
UNITS_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def at_least(least: int) -> Callable[[str], int]:
    """Return the click type of a flag for a whole number of at least `least`.

    click's own range reports a letter as no "valid integer range".
    """

    def integer(text: str) -> int:
        try:
            value = _integer(text)
        except ValueError as exc:
            raise click.BadParameter(f"{text!r} {exc}") from exc
        if value < least:
            raise click.BadParameter(f"{value} is below {least}, the least that makes sense")
        return value

    return integer


def decimal(text: str) -> int | None:
    """Read a number that consists of decimal digits alone; return None if the text is none.

    A number with more digits than any that makes sense is none, either: some are too long for
    Python's own `int`.
    """
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else None


def not_empty(value: str) -> str:
    """Refuse an empty text, which an unset variable gives, as in `--checkpoint "$URL"`.

    Raises: BadParameter: the text is empty.
    """
    if not value:
        raise click.BadParameter("it is empty: give a value, or leave the flag out")
    return value


def whole(flag: str, text: str | None, default: int, *, least: int) -> int:
    """Read a whole number; return `default` for None.

    Raises: CallError: the text is no whole number, or the number is below `least`.
    """
    if text is None:
        return default
    try:
        value = _integer(text)
    except ValueError as exc:
        raise CallError(f"{flag} {text} {exc}.") from exc
    if value < least:
        raise CallError(f"{flag} {text} is below {least}, the least that makes sense.")
    return value


def seconds(flag: str, text: str | None, default: float, *, least_s: float = 0.0) -> float:
    """Read a duration in seconds; return `default` for None.

    Raises: CallError: the text is no number, or the duration is below `least_s` or infinite.
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


def check_range(flag: str, value_s: float, least_s: float, most_s: float) -> None:
    """Refuse a duration that is shorter than the least possible, or longer than makes sense.

    Raises: CallError: the duration is below `least_s`, or above `most_s`.
    """
    if value_s < least_s:
        raise CallError(f"{flag} {value_s:g} is below {least_s:g} seconds, the least possible.")
    if value_s > most_s:
        raise CallError(
            f"{flag} {value_s:g} is above {most_s:.0f} seconds, the most that makes sense."
        )


def checked_lease_ttl_s(ttl_s: float) -> float:
    """Return the value of `--lease-ttl`, in seconds.

    Raises: CallError: the value is below the shortest lease that etcd grants, or so long that the
        loss of a node would hardly be noticed.
    """
    if ttl_s < LEAST_LEASE_TTL_S:
        raise CallError(
            f"--lease-ttl {ttl_s:g} is below {LEAST_LEASE_TTL_S:g} seconds, the least etcd grants."
        )
    check_range("--lease-ttl", ttl_s, LEAST_LEASE_TTL_S, MOST_LEASE_TTL_S)
    return ttl_s


def size(flag: str, text: str | None, *, least: int) -> int:
    """Read a size such as 500K, 100M or 2G, in powers of 1024; return bytes, 0 for None.

    Raises: CallError: the text is no size, or the size is below `least` bytes.
    """
    if text is None:
        return 0
    unit = UNITS_BYTES.get(text[-1:].upper(), 0)
    digits = text[:-1] if unit else text
    number = decimal(digits)
    if number is None:
        raise CallError(f"{flag} {text} is not a size: write a number of bytes, 100M or 2G.")
    nbytes = number * (unit or 1)
    if nbytes < least:
        raise CallError(f"{flag} {text} is below {least} bytes, the least that makes sense.")
    return nbytes


def signal_of(name: str) -> signal.Signals | None:
    """Return the signal of this name, as in SIGTERM; None if there is none."""
    return signal.Signals.__members__.get(name)


def host(flag: str, text: str) -> str:
    """Return `text` if it can be a host name or an address; empty if the flag is not given.

    Raises: CallError: it is neither, as a URL is.
    """
    try:
        is_host = not re.search(r"[\s/@,\[\]]", text) and text.encode("idna") is not None
    except UnicodeError:
        is_host = False
    if not is_host:
        raise CallError(f"{flag} {text!r} is no host name and no address, as in 10.0.0.7.")
    return text


def duration(text: str) -> float:
    """Read a duration for click: "90", "90s", "1.5m", "2h" or "1d", in seconds.

    Raises: BadParameter: the text is no duration.
    """
    number, unit_s = (text[:-1], UNITS_S[text[-1]]) if text[-1:] in UNITS_S else (text, 1.0)
    try:
        value_s = float(number) * unit_s
    except ValueError as exc:
        raise click.BadParameter(f"{text!r} is no duration: write 90s, 5m, 2h or 1d") from exc
    if not 0.0 <= value_s < float("inf"):
        raise click.BadParameter(f"{text!r} is no duration of 0 s or more: write 90s, 5m, 2h or 1d")
    return value_s


def moment(text: str) -> float:
    """Read a time for click: "10m" or "10m ago", or a date such as 2026-11-23T14:02.

    The result is in seconds since 1970; a time without a zone is in this machine's zone.

    Raises: BadParameter: the text is no time.
    """
    with suppress(click.BadParameter):
        return time.time() - duration(text.removesuffix("ago").rstrip())
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as exc:
        raise click.BadParameter(
            f"{text!r} is no time: write 90s, 10m, 2h or 1d, which is so long ago, or "
            "2026-11-23T14:02"
        ) from exc


def duration_option(flag: str, name: str, help: str) -> Callable[[F], F]:
    """Return a decorator that adds a flag for a duration in seconds, None if it is not given."""
    return click.option(flag, name, type=duration, metavar="TIME", help=help)


def _integer(text: str) -> int:
    """Read a whole number.

    Raises: ValueError: the text is none, or the number is too long; the message says which.
    """
    if sum(map(str.isdecimal, text)) > MOST_DIGITS:
        raise ValueError(f"has more than {MOST_DIGITS} digits")
    try:
        return int(text)
    except ValueError:
        raise ValueError("is not a whole number") from None

"""Numbers with their units, as people write them. Pure."""

import math
import time

__all__ = ["FAR", "clock", "counted", "number", "percent", "span"]

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_EXACT_S = 120.0
"""Durations up to this many seconds are given in seconds."""
FAR = "after the year 9999"
_LAST_UNIX_S = 253_402_214_400.0
"""The last day of the year 9999: far beyond it the C library knows no date."""


def span(seconds: float) -> str:
    """Return a duration in a suitable unit, such as "0.31 s", "90 s" or "2.5 h"."""
    if seconds < 1.0:
        return f"{seconds * 1000.0:.3g} ms" if seconds > 0.0 else "0 s"
    if seconds <= _EXACT_S:
        return f"{seconds:.3g} s"
    unit_s, name = next((each for each in _UNITS if seconds >= each[0]), (60.0, "min"))
    value = seconds / unit_s
    return f"{value:.0f} {name}" if value >= 100.0 else f"{value:.3g} {name}"


def number(value: float) -> str:
    """Return a number in four digits, or a whole number in full; NaN and infinities are valid."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return f"{int(value)}"
    return f"{value:.4g}"


def percent(share: float) -> str:
    """Return a part of one as a percentage."""
    return f"{share * 100.0:.3g} %"


def counted(count: int, what: str) -> str:
    """Return a number with its noun, in the singular or the plural."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def clock(unix_s: float, *, has_day: bool = False) -> str:
    """Return a time in this machine's time zone; empty if it is not known."""
    if unix_s <= 0.0:
        return ""
    if unix_s >= _LAST_UNIX_S:
        return FAR
    return time.strftime("%Y-%m-%d %H:%M:%S" if has_day else "%H:%M:%S", time.localtime(unix_s))

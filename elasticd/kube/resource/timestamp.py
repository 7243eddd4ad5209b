"""Converts times of the Kubernetes API (RFC 3339, UTC, whole seconds), by arithmetic alone.

The pure parts may not import `datetime`, because that also reads the clock.
"""

import re

__all__ = ["timestamp", "unix_s"]

DAY_S = 86_400
_FORM = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def timestamp(at_unix_s: float) -> str:
    """Return seconds since 1970 in the form 2026-11-23T10:30:00Z."""
    days, rest = divmod(int(at_unix_s // 1), DAY_S)
    year, month, day = _date(days)
    hours, minutes = divmod(rest // 60, 60)
    return f"{year:04d}-{month:02d}-{day:02d}T{hours:02d}:{minutes:02d}:{rest % 60:02d}Z"


def unix_s(text: str) -> float | None:
    """Return a time in that form as seconds since 1970; None if the text is no such time."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    zone = found[8]
    offset_s = (
        0 if zone in "Zz" else int(zone[0] + "1") * (int(zone[1:3]) * 60 + int(zone[4:])) * 60
    )
    whole_s = _days(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second - offset_s
    return whole_s + float(found[7] or 0.0)


# --- private ----------------------------------------------------------------------------------
# Years begin in March here, so that the leap day is the last day of a year. An era is 400 years,
# which always have 146,097 days; day 0 of era 0 is the 1st of March of the year 0.


def _days(year: int, month: int, day: int) -> int:
    """Return the days since the 1st of January 1970."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


def _date(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since the 1st of January 1970."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    leap_days = day_of_era // 1_460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leap_days) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    return era * 400 + year_of_era + (month <= 2), month, day

"""One table of a policy file: its values by their keys, each checked when it is read.

An error is one sentence: the file, the place, the value, and what to write.
"""

import difflib
import json
import math
import re
from datetime import UTC, date, datetime, time

from elasticd.autoscale.policy_file.key import ALIASES, KEYS
from elasticd.errors import CallError

__all__ = ["LIMIT_S", "Table", "shown"]

LIMIT_S = 366 * 86_400.0
"""The longest duration of a policy, in seconds: a year."""
INTEGER_LIMIT = 2**53
"""Larger whole numbers are not exact as a float."""
TEXT_LIMIT = 4_096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT_S = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()
_SHOWN_CHARS = 60
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


class Table:
    """One table of the file. Every method raises CallError if the file is wrong."""

    def __init__(self, file: str, section: str, values: object, *, place: str = "") -> None:
        """Check the keys of one table, and keep its values.

        Args:
            file: the name of the file, for messages.
            section: the title of the table in `KEYS`.
            values: the parsed TOML of the table.
            place: the place of the table, for messages; if empty, the section's title is used.

        Raises: CallError: the value is no table, or has an unknown key.
        """
        self.file, self._section = file, section
        self._place = place or section
        if not isinstance(values, dict):
            raise self.wrong(f"is {shown(values)} and must be a table: write {section}")
        self._values: dict[str, object] = values
        for key in values:
            if key not in KEYS[section]:
                raise self._unknown(key)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def wrong(self, what: str) -> CallError:
        """Return the error for the whole table."""
        place = f"{self._place} " if self._place else "it "
        return CallError(f"{self.file}: {place}{what}.")

    def wrong_value(self, key: str, what: str) -> CallError:
        """Return the error for one key."""
        where = f"{self._place}: " if self._place else ""
        return CallError(f"{self.file}: {where}{key} = {shown(self._values[key])} {what}.")

    def value(self, key: str) -> object:
        """Return the value of the key, unchecked; None if there is none."""
        assert key in KEYS[self._section], key
        return self._values.get(key)

    def required(self, key: str) -> None:
        """Check that the table has this key.

        Raises: CallError: the key is missing.
        """
        if self.value(key) is None:
            example = KEYS[self._section][key].form.example
            raise self.wrong(f"has no {key}: add {key} = {example}")

    def one_of(self, keys: tuple[str, ...], meaning: str) -> str:
        """Return the one of these keys that the table has; it must have exactly one.

        Raises: CallError: the table has none of them, or several.
        """
        found = [key for key in keys if self.value(key) is not None]
        if len(found) > 1:
            raise self.wrong(f"has both {' and '.join(found)}: keep one of them, {meaning}")
        if not found:
            raise self.wrong(f"has neither {' nor '.join(keys)}: add one of them, {meaning}")
        return found[0]

    def number(
        self, key: str, default: float, *, above: float = -math.inf, least: float = -math.inf
    ) -> float:
        """Return a number above a bound, or no less than another; NaN and infinities are refused.

        Raises: CallError: the value is no such number.
        """
        value = self.value(key)
        if value is None:
            return default
        number = self._number(key, value)
        if not number > above:
            raise self.wrong_value(key, f"must be above {above:g}")
        if number < least:
            raise self.wrong_value(key, f"must be {least:g} or more")
        return number

    def share(self, key: str, default: float, *, may_be_zero: bool = False) -> float:
        """Return a part of a whole, from 0 to 1.

        Raises: CallError: the value is no number in that range.
        """
        value = self.value(key)
        if value is None:
            return default
        number = self._number(key, value)
        if not 0.0 <= number <= 1.0 or (number == 0.0 and not may_be_zero):
            least = "0" if may_be_zero else "above 0"
            raise self.wrong_value(key, f"must be from {least} to 1: write 0.1 for 10 %")
        return number

    def integer(self, key: str, default: int, *, least: int = 1) -> int:
        """Return a whole number; 4.0 is one.

        Raises: CallError: the value is not whole, too small or too large.
        """
        value = self.value(key)
        if value is None:
            return default
        number = self._number(key, value)
        if number != math.floor(number):
            raise self.wrong_value(key, "is not a whole number")
        if number < least:
            raise self.wrong_value(key, f"is below {least}, the least that makes sense")
        if number > INTEGER_LIMIT:
            raise self.wrong_value(key, f"is above {INTEGER_LIMIT}, the most that makes sense")
        return int(number)

    def duration(
        self, key: str, default: float, *, least_s: float = 0.0, most_s: float = LIMIT_S
    ) -> float:
        """Return seconds, in whole milliseconds; a number without a unit is seconds.

        Raises: CallError: the value is no duration, too short or too long.
        """
        value = self.value(key)
        if value is None:
            return default
        # Milliseconds are the smallest unit: a smaller part is rounding noise of the file's
        # numbers.
        seconds = round(self._seconds(key, value), 3)
        if seconds < least_s:
            raise self.wrong_value(key, f"is shorter than {least_s:g}s, the least that makes sense")
        if seconds > most_s:
            raise self.wrong_value(key, f"is longer than {most_s / 3_600:g}h, the most it may be")
        return seconds

    def flag(self, key: str, default: bool) -> bool:
        """Return the boolean that the table has under this key, or the default.

        Raises: CallError: the value is neither.
        """
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong_value(key, "must be true or false, without quotes")
        return value

    def text(self, key: str, *, limit: int = TEXT_LIMIT, may_have_lines: bool = False) -> str:
        """Return text that is not empty.

        Raises: CallError: the value is no text, empty, too long or cannot be printed.
        """
        value = self.value(key)
        if not isinstance(value, str):
            raise self.wrong_value(key, 'must be text in quotes, as in "queue"')
        if not value.strip():
            raise self.wrong_value(key, "is empty")
        if len(value) > limit:
            raise self.wrong_value(key, f"has {len(value)} characters, and may have {limit}")
        allowed = "\n\t" if may_have_lines else ""
        if any(not each.isprintable() and each not in allowed for each in value):
            raise self.wrong_value(key, "has characters that cannot be printed: take them out")
        return value.strip()

    def word(self, key: str, words: tuple[str, ...], default: str) -> str:
        """Return one of some words; upper and lower case count as the same.

        Raises: CallError: the value is none of these words.
        """
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, str) or value.lower() not in words:
            raise self.wrong_value(key, f"must be one of {', '.join(map(shown, words))}")
        return value.lower()

    def moment(self, key: str) -> float:
        """Return the time that stands under this key, in seconds since 1970.

        Raises: CallError: the value is no time, has no time zone, or is too far in the past or
        future.
        """
        value = self.value(key)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                value = None
        if not isinstance(value, datetime):
            raise self.wrong_value(key, "is no time: write it as in 2026-11-24T08:00:00Z")
        if value.tzinfo is None:
            raise self.wrong_value(
                key, "does not say of which zone: add Z for UTC, or an offset as in +02:00"
            )
        at_unix_s = (value - _EPOCH).total_seconds()
        if not 0.0 < at_unix_s < _LAST_MOMENT_S:
            raise self.wrong_value(key, "is no time that a clock will show: write one to come")
        return at_unix_s

    def _number(self, key: str, value: object) -> float:
        if isinstance(value, str):
            raise self.wrong_value(key, "is text and must be a number: write it without quotes")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong_value(key, "must be a number")
        if isinstance(value, int) and abs(value) > 10**300:
            raise self.wrong_value(key, "is too large")
        if not math.isfinite(value):
            raise self.wrong_value(key, "must be a number, and not without end")
        return float(value)

    def _seconds(self, key: str, value: object) -> float:
        if not isinstance(value, str):
            seconds = self._number(key, value)
            if seconds < 0:
                raise self.wrong_value(key, "is below 0, which no duration is")
            return seconds
        text = value.strip()
        if re.fullmatch(r"\d+(?:\.\d+)?", text, re.ASCII):
            return float(text)
        if _DURATION.fullmatch(text) is None:
            raise self.wrong_value(key, 'is no duration: write "90s", "5m", "2h" or "1d"')
        # Not fsum: it raises where the sum of two finite numbers is infinite.
        return sum(float(count) * _UNITS_S[unit] for count, unit in _PART.findall(text))

    def _unknown(self, key: str) -> CallError:
        known = KEYS[self._section]
        other = ALIASES.get(key) or ALIASES.get(key.replace("-", "_"))
        if other is not None and other.split(" ")[0] in known:
            hint = f"here it is {other}"
        else:
            plain = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", key).lower()
            near = difflib.get_close_matches(plain, known, n=1, cutoff=0.5)
            elsewhere = [title for title, keys in KEYS.items() if plain in keys and title]
            if near:
                hint = f"is {near[0]} meant?"
            elif elsewhere:
                hint = f"it belongs to {elsewhere[0]}"
            else:
                hint = f"the keys are {', '.join(known)}"
        where = f"{self._place}: " if self._place else ""
        end = "" if hint.endswith("?") else "."
        return CallError(f"{self.file}: {where}the key {shown(key)} is not known; {hint}{end}")


def shown(value: object) -> str:
    """Return a value as it would be written in the file, shortened if it is long."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = json.dumps(value, ensure_ascii=False)
        case int() | float():
            text = _digits(value)
        case datetime() | date() | time():
            text = value.isoformat()
        case dict():
            text = "{" + ", ".join(f"{key} = {shown(each)}" for key, each in value.items()) + "}"
        case list():
            text = "[" + ", ".join(shown(each) for each in value[:8]) + "]"
        case _:
            text = str(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _digits(value: float) -> str:
    if isinstance(value, int) and abs(value) > 10**30:
        return "a number of very many digits"
    return repr(value)

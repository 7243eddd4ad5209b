"""Reads JSON that somebody else may have written: each value has its type and is within a limit.

Every text ends with a checksum of what comes before. Without the checksum a flipped bit in a number
would still be JSON, and a reader would believe an entry or a checksum that nobody wrote.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from elasticd.checkpoint.format.checksum import text_sum
from elasticd.errors import ElasticdError

__all__ = [
    "Damaged",
    "DamagedBlock",
    "check_integer",
    "document",
    "integer",
    "number",
    "retry_damaged",
    "rows",
    "text",
    "value_text",
    "with_checksum",
]  # fmt: skip

T = TypeVar("T")

TEXT_LIMIT = 10_000
TRIES = 3

_SEAL = b',"sum":"%s"}'
_SEAL_BYTES = len(_SEAL % (b"0" * 32))


class DamagedBlock(NamedTuple):
    """A block of a checkpoint's part, which is not as it was written."""

    part: str
    """The part's name inside its folder."""
    number: int


class Damaged(ElasticdError):
    """What was read is not what was written, or was never complete: use another checkpoint."""

    def __init__(self, message: str, *, block: DamagedBlock | None = None) -> None:
        super().__init__(message)
        self.block = block
        """The first damaged block; None where no part was read."""


def with_checksum(plain: Mapping[str, Any]) -> bytes:
    """Return the text of an object with its own checksum at the end; `document` reads it."""
    body = json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()[:-1]
    return body + _SEAL % text_sum(body).encode()


def retry_damaged(once: Callable[[], T]) -> T:
    """Call a reader up to three times while it raises Damaged: most flipped bits flip
    on the way.
    """
    for _ in range(TRIES - 1):
        try:
            return once()
        except Damaged:
            continue
    return once()


def document(data: bytes, limit_bytes: int, *formats: int) -> dict[str, Any]:
    """Parse what `with_checksum` wrote in one of these versions of the format.

    Raises: Damaged: the text is something else.
    """
    if len(data) > limit_bytes:
        raise Damaged(f"A text of {len(data)} bytes is too large to be true.")
    body = data[:-_SEAL_BYTES]
    if data[len(body) :] != _SEAL % text_sum(body).encode():
        raise Damaged("Its checksum does not match what was read.")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise Damaged(f"It is no JSON: {str(exc)[:200]}.") from exc
    if not isinstance(fields, dict):
        raise Damaged("It is no JSON object.")
    found = fields.get("format")
    if type(found) is not int or found not in formats:
        newest = max(formats)
        newer = type(found) is int and found > newest
        advice = ": read it with the elasticd that wrote it, or a newer one." if newer else "."
        raise Damaged(
            f"It has the format {value_text(found)}, and this elasticd reads {newest}{advice}"
        )
    return fields


def value_text(value: Any) -> str:
    """Return a value as a message shows it; a nested value is only named as such."""
    return repr(value)[:100] if isinstance(value, int | float | str | None) else "something else"


def check_integer(name: str, value: Any, most: int, least: int = 0) -> None:
    """Check that a value is a whole number within these bounds, both included.

    Raises: Damaged: the value is no such number.
    """
    if type(value) is not int or not least <= value <= most:
        raise Damaged(f"{name} is {value_text(value)}, which is no number from {least} to {most}.")


def integer(values: Mapping[str, Any], name: str, most: int, *, least: int = 0) -> int:
    value = values.get(name)
    check_integer(name, value, most, least)
    assert isinstance(value, int)
    return value


def number(values: Mapping[str, Any], name: str) -> float:
    """Return a number that is finite and that a float can hold.

    Raises: Damaged: the value is missing, or no such number.
    """
    value = values.get(name)
    if type(value) is int and abs(value) < 1 << 62:
        return float(value)
    if type(value) is not float or not math.isfinite(value):
        raise Damaged(f"{name} is {value_text(value)}, which is no number.")
    return value


def text(values: Mapping[str, Any], name: str, most: int = TEXT_LIMIT) -> str:
    """Return a text of at most so many characters.

    Raises: Damaged: the value is missing, no text, or longer.
    """
    value = values.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise Damaged(f"{name} is no text of at most {most} characters.")
    return value


def rows(values: Mapping[str, Any], name: str, most: int, width: int) -> list[list[Any]]:
    """Return a list of lists of this width.

    Raises: Damaged: the value is no list, is too long, or has a row of another width.
    """
    value = values.get(name)
    if not isinstance(value, list) or len(value) > most:
        raise Damaged(f"{name} is no list of at most {most}.")
    if not all(isinstance(row, list) and len(row) == width for row in value):
        raise Damaged(f"{name} has a row that is no list of {width}.")
    return value

"""Reads JSON that somebody else may have written: each value is of its type and within a limit."""

import json
from collections.abc import Mapping
from typing import Any

from elasticd.errors import ElasticdError

__all__ = ["Damaged", "check_whole", "document", "number", "rows", "text", "whole"]

TEXT_LIMIT = 10_000


class Damaged(ElasticdError):
    """What was read is not what was written, or was never whole: use another checkpoint."""


def document(data: bytes, limit_bytes: int, format: int) -> dict[str, Any]:
    """Parse an object of this format's version.

    Raises:
        Damaged: it is none.
    """
    if len(data) > limit_bytes:
        raise Damaged(f"A text of {len(data)} bytes is too large to be true.")
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise Damaged(f"It is no JSON: {str(exc)[:200]}.") from exc
    if not isinstance(said, dict):
        raise Damaged("It is no JSON object.")
    if said.get("format") != format:
        raise Damaged(
            f"It has the format {str(said.get('format'))[:50]}, and this elasticd reads {format}."
        )
    return said


def check_whole(name: str, value: Any, most: int, least: int = 0) -> None:
    if type(value) is not int or not least <= value <= most:
        raise Damaged(f"{name} is {str(value)[:50]}, which is no number from {least} to {most}.")


def whole(said: Mapping[str, Any], name: str, most: int, *, least: int = 0) -> int:
    value = said.get(name)
    check_whole(name, value, most, least)
    assert isinstance(value, int)
    return value


def number(said: Mapping[str, Any], name: str) -> float:
    value = said.get(name)
    if type(value) not in (int, float):
        raise Damaged(f"{name} is no number.")
    return float(value)  # type: ignore[arg-type]


def text(said: Mapping[str, Any], name: str, most: int = TEXT_LIMIT) -> str:
    value = said.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise Damaged(f"{name} is no text of at most {most} characters.")
    return value


def rows(said: Mapping[str, Any], name: str, most: int, width: int) -> list[list[Any]]:
    """A list of lists of this width."""
    value = said.get(name)
    if not isinstance(value, list) or len(value) > most:
        raise Damaged(f"{name} is no list of at most {most}.")
    if not all(isinstance(row, list) and len(row) == width for row in value):
        raise Damaged(f"{name} has a row that is no list of {width}.")
    return value

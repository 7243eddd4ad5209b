"""The text form of messages: one JSON object a line."""

import json
from collections.abc import Mapping
from typing import Any

from elasticd.errors import InvariantBroken
from elasticd.records.codec import from_plain, to_plain

__all__ = ["LINE_LIMIT_BYTES", "pack", "unpack"]

LINE_LIMIT_BYTES = 4_000_000
"""The limit of a line: room for the largest environment that Linux allows a process at its
start."""


def pack(message: object) -> bytes:
    """Return one line, with its newline."""
    return json.dumps([type(message).__name__, to_plain(message)]).encode() + b"\n"


def unpack(line: bytes, kinds: Mapping[str, type]) -> Any:
    """Read a message of one of these kinds, by name.

    Raises:
        InvariantBroken: the message is none of them, or its fields do not fit.
    """
    try:
        name, plain = json.loads(line)
        return from_plain(kinds[name], plain)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as exc:
        raise InvariantBroken(f"A message on a process's channel does not fit: {exc}") from exc

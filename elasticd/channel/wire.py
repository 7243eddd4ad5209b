"""The text form of messages: one JSON object a line."""

import json
from collections.abc import Mapping
from typing import Any

from elasticd.errors import InvariantBroken
from elasticd.records.codec import from_plain, to_plain

__all__ = ["LINE_LIMIT_BYTES", "pack", "tag", "unpack"]

LINE_LIMIT_BYTES = 4_000_000
"""The limit of a line: room for the largest environment that Linux allows a process at its
start."""


def pack(message: object) -> bytes:
    """Return one line, with its newline."""
    return json.dumps([tag(type(message)), to_plain(message)]).encode() + b"\n"


def tag(kind: type) -> str:
    """Return the name of this kind of message on the wire: its `TAG`, or else its class's name."""
    name: str = getattr(kind, "TAG", kind.__name__)
    return name


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

"""Parses JSON of the API server, however deeply somebody has nested it, and writes it.

The API server takes objects of ten thousand levels where a schema lets any object stand, and
Python's parser gives up at a thousand. One such object would make every listing unreadable, for all
jobs of all teams. So values deeper than anything that we read are replaced, and the check of the
field says what is wrong with that one object.

What is applied is parsed as YAML there. It knows no escapes of two surrogates, as JSON writes the
characters beyond 16 bits (an emoji), so those stand as they are. All others are escaped, since YAML
refuses some of them.
"""

import json
import re
from typing import Any

from elasticd.kube.resource.plain_text import REPLACEMENT

__all__ = ["DEPTH_LIMIT", "document", "encoded", "levelled"]

DEPTH_LIMIT = 64
"""The depth limit; no object that makes sense to us has a quarter of it."""
CUT = "(too deep)"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_ESCAPED = re.compile("[\x7f-\uffff]")


def document(data: bytes) -> Any:
    """Parse a document; if Python cannot parse it, texts replace what is too deep.

    Raises: ValueError: it is no JSON.
    """
    try:
        return json.loads(data)
    except RecursionError:
        return json.loads(_cut(data))


def encoded(value: object) -> bytes:
    """Return a value as JSON that is YAML too, whatever is in its texts."""
    return _ESCAPED.sub(_escape, json.dumps(value, ensure_ascii=False)).encode()


def levelled(value: Any, depth: int = DEPTH_LIMIT) -> Any:
    """Return a value in which texts replace what is too deep; a value that is not deep is not
    copied.
    """
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return CUT
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, item in pairs:
        if (found := levelled(item, depth - 1)) is not item:
            value[key] = found
    return value


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    is_half = "\ud800" <= character <= "\udfff"  # Half of a pair: UTF-8 does not have it.
    return f"\\u{ord(REPLACEMENT if is_half else character):04x}"


def _cut(data: bytes) -> bytes:
    """Do the same to the text, without recursion."""
    # A list of objects is two levels more than an object, a watch's event one.
    limit = DEPTH_LIMIT + 2
    parts: list[bytes] = []
    depth = kept = 0
    for token in _TOKEN.finditer(data):
        if token[0] in b"{[":
            depth += 1
            if depth == limit + 1:
                parts += data[kept : token.start()], json.dumps(CUT).encode()
        elif token[0] in b"}]":
            if depth == limit + 1:
                kept = token.end()
            depth -= 1
    return b"".join([*parts, data[kept:]])

"""Parses the API server's JSON at any depth of nesting, and writes JSON for the API server.

If a schema allows any object in a field, the API server accepts ten thousand levels there, but
Python's parser fails at a thousand. One such object would make every listing unreadable, for all
jobs of all teams. So this module replaces values that are deeper than all that elasticd reads, and
the check of the field says what is wrong with that one object.

The API server parses an applied document as YAML. JSON writes a character beyond 16 bits (an emoji)
as two escaped surrogates, which YAML does not have, so such characters are not escaped. All other
special characters are escaped, since YAML refuses some of them.
"""

import json
import re
from typing import Any

from elasticd.kube.resource.plain_text import REPLACEMENT

__all__ = ["DEPTH_LIMIT", "document", "encoded", "levelled"]

DEPTH_LIMIT = 64
"""The largest number of levels; no sensible object has a quarter of this depth."""
CUT = "(too deep)"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_ESCAPED = re.compile("[\x7f-\uffff]")


def document(data: bytes) -> Any:
    """Parse a document; if Python cannot parse it, texts replace the values that are too deep.

    Raises: ValueError: the document is no JSON.
    """
    try:
        return json.loads(data)
    except RecursionError:
        return json.loads(_cut(data))


def encoded(value: object) -> bytes:
    """Return a value as JSON that is also valid YAML, for any characters in its texts."""
    return _ESCAPED.sub(_escape, json.dumps(value, ensure_ascii=False)).encode()


def levelled(value: Any, depth: int = DEPTH_LIMIT) -> Any:
    """Return the value with texts in place of its parts that are too deep; a value that is not too
    deep is returned without a copy.
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
    is_half = "\ud800" <= character <= "\udfff"  # Half of a surrogate pair, which UTF-8 lacks.
    return f"\\u{ord(REPLACEMENT if is_half else character):04x}"


def _cut(data: bytes) -> bytes:
    """Replace the parts that are too deep in the text of a document, without recursion."""
    # An object of a list is two levels deeper than a single object, and the object of a watch's
    # event is one level deeper.
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

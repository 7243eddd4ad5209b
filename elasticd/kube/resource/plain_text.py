"""Removes from a script's text the characters that the API server refuses.

An exception may hold any character, also half of a surrogate pair, which UTF-8 does not have. The
API server reads an applied object as YAML, which refuses control characters. Such characters are
replaced, so that every failure of a job can be reported.
"""

import re

__all__ = ["REPLACEMENT", "TEXT_LIMIT", "plain_text"]

TEXT_LIMIT = 4096
"""The limit for a sentence in a status, in characters. A status has the sentence up to four times:
an object must stay far below etcd's limit of 1.5 MiB, and a condition below the 32,768 characters
of its schema."""
REPLACEMENT = "\ufffd"
_REFUSED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_CUT = " ..."


def plain_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return the text without characters that the API server refuses, and cut if it is too long.

    Plain text is not changed, so that a status that was written compares equal to the status that
    is read.
    """
    plain = _REFUSED.sub(REPLACEMENT, text)
    return plain if len(plain) <= limit else plain[: limit - len(_CUT)] + _CUT

"""Text that somebody's script wrote, as the API server takes it.

An exception may hold any character, also half of a pair of surrogates, which UTF-8 does not have.
What is applied is read as YAML there, which refuses control characters. Such characters are
replaced, so that a job's failure is told whatever it says.
"""

import re

__all__ = ["REPLACEMENT", "TEXT_LIMIT", "plain_text"]

TEXT_LIMIT = 4096
"""The characters of a sentence in a status, which has it up to four times: an object must stay far
below the 1.5 MiB that etcd takes, and a condition below the 32,768 characters of its schema."""
REPLACEMENT = "\ufffd"
_REFUSED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_CUT = " ..."


def plain_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return the text with nothing in it that the API server refuses, and cut where it is too long.

    What is plain stays as it is, so that a status that was written compares equal to what is read.
    """
    plain = _REFUSED.sub(REPLACEMENT, text)
    return plain if len(plain) <= limit else plain[: limit - len(_CUT)] + _CUT

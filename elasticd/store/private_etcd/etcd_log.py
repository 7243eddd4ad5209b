"""What a private etcd wrote in its log when it ended."""

import json
from pathlib import Path

__all__ = ["last_words"]

_TAIL_BYTES = 64 * 1024
_WORDS_LIMIT = 300


def last_words(log: Path) -> str:
    """Return the newest line that tells of its end, in words; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = (_words(line) for line in reversed(lines))
    return next(filter(None, said), "")[:_WORDS_LIMIT]


def _words(line: str) -> str:
    if line.startswith("panic: "):
        return line
    try:
        plain = json.loads(line)
        if plain["level"] not in ("fatal", "panic"):
            return ""
        return ": ".join(str(plain[key]) for key in ("msg", "error") if plain.get(key))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""

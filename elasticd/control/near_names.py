"""A name that there is not: which ones a person may have meant."""

import difflib
from collections.abc import Iterable

__all__ = ["near"]


def near(name: str, names: Iterable[str], command: str) -> str:
    """Return the rest of the sentence that says that `name` is not there: the nearest of the known
    names, and the command that lists all.
    """
    known = sorted(names)
    found = difflib.get_close_matches(name, known, n=3) or known[:5]
    if not found:
        return f": there is none at all (`{command}` lists them)."
    return f": did you mean {', '.join(found)}? `{command}` lists all."

"""Suggests similar names for a name that does not exist."""

import difflib
from collections.abc import Iterable

__all__ = ["near"]


def near(name: str, names: Iterable[str], command: str) -> str:
    """Return the end of a sentence that says that `name` does not exist.

    It contains the most similar names of `names`, and the command that lists all names.
    """
    known = sorted(names)
    found = difflib.get_close_matches(name, known, n=3) or known[:5]
    if not found:
        return f": there is none at all (`{command}` lists them)."
    return f": did you mean {', '.join(found)}? `{command}` lists all."

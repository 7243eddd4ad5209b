"""A policy's PromQL, in which `$job` and `$window` are filled in.

A policy is written once and set for many jobs, so its queries name the job by `$job` (or `${job}`)
and the length of the window by `$window`. The name is put into a string of PromQL, so it is escaped
as that string needs: with backslashes in "..." and '...', not at all in `...`, and as a regular
expression's literal if the string is one (after =~ and !~). Any other text that begins with a
dollar is not changed: `label_replace` has references of its own ($1, ${name}).
"""

import math
import re
from functools import lru_cache

__all__ = [
    "VARIABLES",
    "filled",
    "is_closed",
    "reach_s",
    "unquoted",
    "variables",
    "window_text",
]

VARIABLES = ("job", "window")
"""The names that a query may use after a dollar."""

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_TOKEN = re.compile(
    r"""
      (?P<comment> \#[^\n]* )
    | (?P<string> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` )
    | (?P<quote> ["'`] )
    | (?P<variable> \$[A-Za-z_]\w* | \$\{[A-Za-z_]\w*\} )
    | (?P<regex> =~ | !~ )
    | (?P<space> \s+ )
    | (?P<other> [^\s"'`\#$=!]+ | . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_RANGE = re.compile(r"\[([^\]:]*)(:?)[^\]]*\]")
_OFFSET = re.compile(r"\boffset\s+(-?[0-9a-z.]+)", re.IGNORECASE)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwy]?)")
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000, "": 1}
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def filled(query: str, *, job: str, window_s: float) -> str:
    """Return the query with the job's name and the window in it.

    Args:
        query: the PromQL of a policy.
        job: the name of the job, any text.
        window_s: the window in seconds, above 0; the least PromQL duration is a millisecond.
    """
    window = window_text(window_s)
    parts: list[str] = []
    is_regex = False
    for found in _TOKEN.finditer(query):
        text = found.group()
        match found.lastgroup:
            case "string":
                name = _escaped(job, text[0], is_regex=is_regex)
                text = _with_values(text, name, window)
            case "variable":
                text = _with_values(text, job, window)
        if found.lastgroup not in ("space", "comment"):
            is_regex = found.lastgroup == "regex"
        parts.append(text)
    return "".join(parts)


@lru_cache(maxsize=1024)
def reach_s(query: str, window_s: float) -> float:
    """Return how far back the query's ranges and offsets look, in seconds; 0 if it has none.

    A subquery looks back from each of its moments, so its range is added to the range inside it.
    """
    found = filled(query, job="", window_s=window_s)
    text = "".join(
        each.group()
        for each in _TOKEN.finditer(found)
        if each.lastgroup not in ("string", "comment")
    )
    ranges = [(_span_s(each[1]), bool(each[2])) for each in _RANGE.finditer(text)]
    within_s = max((span_s for span_s, is_subquery in ranges if not is_subquery), default=0.0)
    around_s = sum(span_s for span_s, is_subquery in ranges if is_subquery)
    offset_s = max((_span_s(each[1]) for each in _OFFSET.finditer(text)), default=0.0)
    return within_s + around_s + offset_s


def _span_s(text: str) -> float:
    """Read a PromQL duration (1h30m, or a number of seconds); anything else counts as 0."""
    return sum(float(each[1]) * _UNIT_S[each[2]] for each in _SPAN.finditer(text))


def variables(query: str) -> tuple[str, ...]:
    """Return the names after a dollar, each once, in their order, including those of references."""
    names = (found.group(1) or found.group(2) for found in _VARIABLE.finditer(query))
    return tuple(dict.fromkeys(names))


def unquoted(query: str) -> tuple[str, ...]:
    """Return the names after a dollar that are outside of strings, each once."""
    bare = (each.group() for each in _TOKEN.finditer(query) if each.lastgroup == "variable")
    return variables(" ".join(bare))


def is_closed(query: str) -> bool:
    """Return whether each quote of the query is closed."""
    return all(found.lastgroup != "quote" for found in _TOKEN.finditer(query))


def window_text(window_s: float) -> str:
    """Return seconds as a PromQL duration, such as 1m30s; at least 1ms."""
    left_ms = max(1, math.floor(window_s * 1_000 + 0.5))
    text = ""
    for unit, unit_ms in _UNITS_MS:
        count, left_ms = divmod(left_ms, unit_ms)
        text += f"{count}{unit}" if count else ""
    return text


def _escaped(job: str, quote: str, *, is_regex: bool) -> str:
    literal = re.sub(r"[^A-Za-z0-9_-]", r"\\\g<0>", job) if is_regex else job
    if quote == "`":
        return literal
    return literal.replace("\\", "\\\\").replace(quote, "\\" + quote).replace("\n", "\\n")


def _with_values(text: str, job: str, window: str) -> str:
    values = {"job": job, "window": window}
    return _VARIABLE.sub(
        lambda found: values.get(found.group(1) or found.group(2), found.group()), text
    )

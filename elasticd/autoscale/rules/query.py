"""A policy's PromQL: `$job` and `$window` filled in.

Intuition: a policy is written once and set for many jobs, so its queries name the job by `$job`
(or `${job}`) and the length of the window by `$window`. The name comes into a string of PromQL, so
it is escaped as that string needs it: with backslashes in "..." and '...', not at all in `...`, and
as a regular expression's literal where the string is one (after =~ and !~). What else begins with a
dollar is left alone: `label_replace` has references of its own ($1, ${name}).
"""

import math
import re

__all__ = ["VARIABLES", "filled", "is_closed", "unquoted", "variables", "window_text"]

VARIABLES = ("job", "window")
"""What a query may name by a dollar."""

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
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def filled(query: str, *, job: str, window_s: float) -> str:
    """Return the query with the job's name and the window in it.

    Args:
        query: PromQL of a policy.
        job: name of the job, any text.
        window_s: above 0; a PromQL duration knows no less than a millisecond.
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


def variables(query: str) -> tuple[str, ...]:
    """Return the names after a dollar, each once, in their order; those of references too."""
    names = (found.group(1) or found.group(2) for found in _VARIABLE.finditer(query))
    return tuple(dict.fromkeys(names))


def unquoted(query: str) -> tuple[str, ...]:
    """Return the names after a dollar that stand outside of strings, each once."""
    bare = (each.group() for each in _TOKEN.finditer(query) if each.lastgroup == "variable")
    return variables(" ".join(bare))


def is_closed(query: str) -> bool:
    """Return whether each quote of the query has its closing one."""
    return all(found.lastgroup != "quote" for found in _TOKEN.finditer(query))


def window_text(window_s: float) -> str:
    """Return seconds as a PromQL duration, as in 1m30s; at least 1ms."""
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

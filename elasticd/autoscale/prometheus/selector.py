"""Finds the vector selectors of a PromQL expression, which name its series. Pure.

Only series have an age (`timestamp(selector)`), but a policy may have any expression. So a lexer
finds its selectors. The lexer knows PromQL's strings, comments, numbers and words, but no grammar:
a selector is a text in braces, or a name that is neither a function nor a keyword, with the braces
after it. Prometheus itself checks the result, since each selector is sent back in a query.

Rejected: Prometheus' own parser behind `/api/v1/parse_query`, which Prometheus before 3.0, Thanos
and Mimir do not have. Limits: `offset` and `@` are left out, so the series must exist *now*,
although the expression looks at an earlier time; the second argument of the experimental `info()`
counts as a selector; a metric with the name of a keyword (`by`, `or`, `inf`) needs braces
(`{__name__="or"}`).
"""

import re
from collections.abc import Iterator

__all__ = ["selectors"]

_TOKEN = re.compile(
    r"""
      (?P<skip> \s+ | \#[^\n]* )
    | (?P<string> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*` )
    | (?P<number> (?:\d|\.\d)[\w.]* )
    | (?P<word> [A-Za-z_:][\w:]* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_AGGREGATIONS = frozenset(
    (
        *("avg", "bottomk", "count", "count_values", "group", "limit_ratio", "limitk", "max"),
        *("min", "quantile", "stddev", "stdvar", "sum", "topk"),
    )
)
_LISTS = frozenset(("by", "without", "on", "ignoring", "group_left", "group_right"))
"""The keywords that a list of labels follows."""
_KEYWORDS = _LISTS | frozenset(
    ("and", "or", "unless", "atan2", "bool", "offset", "inf", "nan", "smoothed", "anchored")
)

_Token = tuple[str, str]
"""The kind of a token, and its text."""


def selectors(expression: str) -> tuple[str, ...]:
    """Return the selectors, each once, in their order; none if the expression has no series.

    A text that is no PromQL gives some selectors or none: Prometheus reports the error in it.
    """
    found: dict[str, None] = {}
    tokens = [token for token in _tokens(expression) if token[0] != "skip"]
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if text == "[":
            at = _behind(tokens, at, "]")
        elif kind == "braces":
            found[text] = None
        elif kind != "word":
            continue
        elif text.lower() in _KEYWORDS:
            if text.lower() in _LISTS and following == "(":
                at = _behind(tokens, at, ")")
        elif following == "(" or _is_aggregation(text, following):
            continue
        elif following.startswith("{"):
            found[f"{text}{following}"] = None
            at += 1
        else:
            found[text] = None
    return tuple(found)


def _is_aggregation(word: str, following: str) -> bool:
    """Return True for `sum by (x) (...)`, whose parenthesis does not follow the word at once."""
    return word.lower() in _AGGREGATIONS and following.lower() in ("by", "without")


def _behind(tokens: list[_Token], at: int, end: str) -> int:
    """Return the position after the next `end`; labels and durations do not contain one."""
    while at < len(tokens) and tokens[at][1] != end:
        at += 1
    return at + 1


def _tokens(expression: str) -> Iterator[_Token]:
    """Yield the tokens; the text from one brace to its closing brace is a single token."""
    braces: list[str] = []
    for found in _TOKEN.finditer(expression):
        kind, text = found.lastgroup or "", found.group()
        if text == "{" and not braces:
            braces.append(text)
        elif braces:
            if not text.startswith("#"):
                braces.append(text)
            if text == "}":
                yield "braces", "".join(braces)
                braces = []
        else:
            yield kind, text

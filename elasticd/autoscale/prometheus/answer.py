"""Parses an answer of Prometheus' HTTP API: bytes in, samples or a failure out. Pure.

No answer is trusted: it may be a proxy's login page, it may be cut off, and a number may be a text
that Python accepts although Prometheus would not write it.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.records.autoscale.held import HoldReason

__all__ = ["Kind", "QueryAnswer", "QueryFailure", "Sample", "answered", "number", "words"]

WORDS_LIMIT = 300
"""The number of characters of others' messages that are passed on."""
_AGAIN = frozenset((408, 425, 429))
"""The 4xx codes that ask for another try later."""
_AGAIN_TYPES = frozenset(("timeout", "canceled", "unavailable", "internal"))
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|Inf|NaN)", re.ASCII)

Kind = str
"""Prometheus' `resultType`: vector, scalar, string or matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFailure:
    """The reason why there is no answer to use."""

    why: HoldReason
    detail: str
    """The reason, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One element of a result."""

    labels: Mapping[str, str] = field(default_factory=dict)
    at_s: float
    """The time of the evaluation, by Prometheus' clock."""
    text: str
    """The value in Prometheus' own text; empty if there is no number (a histogram)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The complete result of one query to Prometheus."""

    kind: Kind
    samples: tuple[Sample, ...] = ()
    """The samples; for a matrix all points of all series, each with its own time."""
    warnings: tuple[str, ...] = ()

    @property
    def clock_s(self) -> float | None:
        """Return Prometheus' time; None for a matrix, or if no sample has it."""
        return self.samples[0].at_s if self.samples and self.kind != "matrix" else None


def answered(status: int, body: bytes) -> QueryAnswer | QueryFailure:
    """Parse one answer of `/api/v1/query` or `/api/v1/query_range`."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        return _no_api(status, body)
    if given.get("status") == "success" and 200 <= status < 300:
        try:
            return _answer(given)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            return _no_api(status, body)
    if isinstance(given.get("error"), str):
        is_again = status >= 500 or status in _AGAIN or given.get("errorType") in _AGAIN_TYPES
        return QueryFailure(
            why=HoldReason.UNREACHABLE if is_again else HoldReason.REFUSED,
            detail=f"Prometheus says: {words(given['error'])}",
        )
    return _no_api(status, body)


def number(text: str) -> float | None:
    """Return Prometheus' number, NaN and infinities included; None if the text is no number."""
    return float(text) if _NUMBER.fullmatch(text) else None


def words(text: str) -> str:
    """Return another server's message as one line that is not too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= WORDS_LIMIT else f"{line[:WORDS_LIMIT]}..."


def _no_api(status: int, body: bytes) -> QueryFailure:
    begins = words(body[:80].decode("utf-8", "replace"))
    is_refused = 400 <= status < 500 and status not in _AGAIN
    return QueryFailure(
        why=HoldReason.REFUSED if is_refused else HoldReason.UNREACHABLE,
        detail=f"It answers with HTTP {status}, and not as Prometheus' API does"
        + (f": {begins}" if begins else "."),
    )


def _answer(given: dict[str, Any]) -> QueryAnswer:
    data = given["data"]
    kind, result = data["resultType"], data["result"]
    warnings = given.get("warnings") or ()
    if not isinstance(kind, str) or not isinstance(result, list):
        raise TypeError
    samples: tuple[Sample, ...]
    match kind:
        case "vector":
            samples = tuple(_sample(each["metric"], each.get("value")) for each in result)
        case "matrix":
            samples = tuple(
                _sample(each["metric"], point)
                for each in result
                for point in each.get("values") or ()
            )
        case "scalar" | "string":
            samples = (_sample({}, result),)
        case _:
            raise ValueError
    return QueryAnswer(
        kind=kind,
        samples=samples,
        warnings=tuple(words(str(each)) for each in warnings),
    )


def _sample(labels: dict[str, str], pair: Any) -> Sample:
    if pair is None:  # A native histogram is under another key.
        return Sample(labels=dict(labels), at_s=0.0, text="")
    at, text = pair
    at_s = float(at)
    if not isinstance(text, str) or not math.isfinite(at_s):
        raise ValueError
    return Sample(labels=dict(labels), at_s=at_s, text=text)

"""Writes samples as text in Prometheus' format, version 0.0.4, and parses elasticd's own files."""

import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.metric import Metric

__all__ = ["CONTENT_TYPE", "Histogram", "Sample", "exposition", "parsed"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERIES_REMEMBERED = 4096
"""The number of series whose labels are kept in written form: most series are the same at each
scrape."""
LABEL_LIMIT = 200
"""The largest number of characters of a label's value; a longer value, which a script may have
made, is cut."""


class Histogram(NamedTuple):
    """The value of a histogram at one moment."""

    counts: tuple[int, ...]
    """The number of observations in each bucket, the last bucket without a bound; the numbers are
    not cumulated."""
    sum: float


class Sample(NamedTuple):
    """One value of one metric."""

    metric: Metric
    labels: tuple[str, ...]
    """The values of the metric's labels, in their order."""
    value: float | Histogram


def exposition(samples: Iterable[Sample]) -> bytes:
    """Return the samples in the list's order; of two with the same labels the last counts."""
    series: dict[str, dict[str, float | Histogram]] = {name: {} for name in _HEADS}
    for metric, labels, value in samples:
        series[metric.name][_pairs(metric.name, labels)] = value
    parts: list[str] = []
    for name, found in series.items():
        if found:
            parts.append(_HEADS[name])
            for pairs, value in found.items():
                if isinstance(value, Histogram):
                    parts.extend(_lines(_METRICS[name], pairs, value))
                else:
                    parts.append(f"{name}{_braces(pairs)} {_number(value)}\n")
    return "".join(parts).encode("utf-8", "replace")


def parsed(text: str) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Parse the text of `exposition`, without histograms: yield name, label values and value.

    A line that cannot be parsed is ignored: the file may be from another version.
    """
    for line in text.split("\n"):
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        labels = tuple(_unescaped(label) for label in _LABEL.findall(found["labels"] or ""))
        yield found["name"], labels, value


_LINE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'[a-z_]+="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\": "\\\\", "\n": "\\n", '"': '\\"'}
_ESCAPED = re.compile(r'[\\\n"]')
_ESCAPE = re.compile(r"\\(.)")


def _head(metric: Metric) -> str:
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {metric.kind}\n"


_METRICS = {metric.name: metric for metric in CATALOG}
_HEADS = {metric.name: _head(metric) for metric in CATALOG}
"""The head of each metric, in the order of the list."""


def _lines(metric: Metric, pairs: str, value: Histogram) -> Iterator[str]:
    below = 0
    before = f"{pairs}," if pairs else ""
    for bound, count in zip((*metric.bounds, math.inf), value.counts, strict=True):
        below += count
        bucket = _braces(f'{before}le="{_number(bound)}"')
        yield f"{metric.name}_bucket{bucket} {below}\n"
    yield f"{metric.name}_sum{_braces(pairs)} {_number(value.sum)}\n"
    yield f"{metric.name}_count{_braces(pairs)} {below}\n"


def _cut(value: str) -> str:
    """Return a label's value in its written form: values with equal results are the same series."""
    return value[:LABEL_LIMIT].encode("utf-8", "replace").decode()


@lru_cache(SERIES_REMEMBERED)
def _pairs(name: str, values: tuple[str, ...]) -> str:
    labels = _METRICS[name].labels
    return ",".join(
        f'{label.name}="{_ESCAPED.sub(lambda found: _ESCAPES[found[0]], _cut(value))}"'
        for label, value in zip(labels, values, strict=True)
    )


def _braces(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    """Return a number in full precision."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)

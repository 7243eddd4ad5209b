"""Samples as text in Prometheus' format, version 0.0.4, and back from a file of ours."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.metric import Label, Metric

__all__ = ["CONTENT_TYPE", "Histogram", "Sample", "exposition", "parsed"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABEL_LIMIT = 200
"""Characters of a label's value; what is longer is cut, as a script may have made it."""


class Histogram(NamedTuple):
    """The value of a histogram at one moment."""

    counts: tuple[int, ...]
    """How many observations fell into each bucket, the last one without a bound; not cumulated."""
    sum: float


class Sample(NamedTuple):
    """One value of one metric."""

    metric: Metric
    labels: tuple[str, ...]
    """The values of the metric's labels, in their order."""
    value: float | Histogram


def exposition(samples: Iterable[Sample]) -> bytes:
    """Write them down in the order of the list; of two with the same labels the last one counts."""
    series: dict[str, dict[tuple[str, ...], float | Histogram]] = {}
    for metric, labels, value in samples:
        cut = tuple(map(_cut, labels))
        series.setdefault(metric.name, {})[cut] = value
    lines: list[str] = []
    for metric in CATALOG:
        if found := series.get(metric.name):
            lines.append(f"# HELP {metric.name} {_escaped_help(metric.help)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            for labels, value in found.items():
                lines.extend(_lines(metric, labels, value))
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def parsed(text: str) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Read what `exposition` wrote, histograms left out: names, values of labels, and values.

    A line that is not understood is passed over: the file may be of another version.
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


def _lines(metric: Metric, labels: tuple[str, ...], value: float | Histogram) -> Iterator[str]:
    pairs = [_pair(label, given) for label, given in zip(metric.labels, labels, strict=True)]
    if not isinstance(value, Histogram):
        yield f"{metric.name}{_braces(pairs)} {_number(value)}"
        return
    below = 0
    for bound, count in zip((*metric.bounds, math.inf), value.counts, strict=True):
        below += count
        bucket = _braces([*pairs, f'le="{_number(bound)}"'])
        yield f"{metric.name}_bucket{bucket} {below}"
    yield f"{metric.name}_sum{_braces(pairs)} {_number(value.sum)}"
    yield f"{metric.name}_count{_braces(pairs)} {below}"


def _cut(value: str) -> str:
    """Return it as it will stand there: what is the same then is the same series."""
    return value[:LABEL_LIMIT].encode("utf-8", "replace").decode()


def _pair(label: Label, value: str) -> str:
    return f'{label.name}="{_ESCAPED.sub(lambda found: _ESCAPES[found[0]], value)}"'


def _braces(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    """Write it so that nothing of it is lost."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)

"""What a benchmark found: samples, figures against targets; as JSON and as text.

A target is the issue's; a figure without one is there to explain. A trial that did not recover in
its time is counted as lost and is in no percentile: the count of the lost stands beside them.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Figure", "Result", "Series", "dump", "load", "percentile", "show", "table"]

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One quantity, measured again and again."""

    name: str
    values: tuple[float, ...]
    unit: str = "s"
    lost: int = 0
    """Trials that did not end in their time."""

    @property
    def count(self) -> int:
        return len(self.values) + self.lost

    def at(self, share: float) -> float:
        return percentile(self.values, share)

    @property
    def row(self) -> tuple[str, ...]:
        numbers = [self.at(share) for share in (0.0, 0.5, 0.99, 1.0)]
        return (
            self.name,
            f"{len(self.values)} of {self.count}",
            *(_number(number, self.unit) for number in numbers),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number; `target` is the most it may be, or the least if `is_least`."""

    name: str
    value: float
    unit: str = "s"
    target: float | None = None
    is_least: bool = False

    @property
    def is_met(self) -> bool | None:
        """None: there is no target. A number that could not be measured meets none."""
        if self.target is None:
            return None
        if math.isnan(self.value):
            return False
        return self.value >= self.target if self.is_least else self.value <= self.target

    @property
    def row(self) -> tuple[str, ...]:
        sign = ">=" if self.is_least else "<="
        target = f"{sign} {self.target:g} {self.unit}".strip() if self.target is not None else ""
        verdict = {None: "", True: "met", False: "NOT MET"}[self.is_met]
        return (self.name, _number(self.value, self.unit), target, verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one benchmark found."""

    name: str
    title: str
    command: str
    method: tuple[str, ...] = ()
    """Sentences."""
    series: tuple[Series, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    """What happened in this run and should be known."""
    text: str = ""
    """A table of the benchmark's own, already laid out."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Raw data."""
    measured: str = ""
    """On which day, and on what cores."""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile: a value that was measured; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool = False) -> str:
    """Lay out rows as text or as Markdown; the first column is left-aligned."""
    if markdown:
        lines = [heads, ["---", *("--:" for _ in heads[1:])], *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (heads, *rows)
    )


FIGURE_HEADS = ("figure", "measured", "target", "verdict")
SERIES_HEADS = ("series", "n", "min", "p50", "p99", "max")


def show(result: Result) -> None:
    """Print it for a person."""
    print(f"\n== {result.title}")
    if result.figures:
        print(table(FIGURE_HEADS, [figure.row for figure in result.figures]) + "\n")
    if result.series:
        print(table(SERIES_HEADS, [series.row for series in result.series]))
    if result.text:
        print(result.text)
    for note in result.notes:
        print(f"note: {note}")
    sys.stdout.flush()


def dump(results: Sequence[Result], path: Path, **head: Any) -> None:
    """Write one JSON document."""
    lines = [json.dumps(_plain(result), allow_nan=False) for result in results]
    start = json.dumps({"schema": SCHEMA, **head}, indent=1, allow_nan=False)[:-2]
    # A line for each benchmark: of ten thousand numbers nobody wants one in each line.
    path.write_text(start + ',\n "results": [\n' + ",\n".join(lines) + "\n ]\n}\n")


def load(path: Path) -> tuple[list[Result], dict[str, Any]]:
    """Read what `dump` wrote: results, and the rest of the document."""
    plain = json.loads(path.read_text())
    results = [_result(each) for each in plain.pop("results")]
    return results, plain


def _plain(result: Result) -> dict[str, Any]:
    plain = asdict(result)
    for figure, each in zip(result.figures, plain["figures"], strict=True):
        each["value"] = None if math.isnan(figure.value) else figure.value
        each["is_met"] = figure.is_met
    return plain


def _result(plain: dict[str, Any]) -> Result:
    figures = []
    for each in plain["figures"]:
        each.pop("is_met", None)
        each["value"] = math.nan if each["value"] is None else each["value"]
        figures.append(Figure(**each))
    series = [Series(**{**each, "values": tuple(each["values"])}) for each in plain["series"]]
    return Result(
        **{
            **plain,
            "figures": tuple(figures),
            "series": tuple(series),
            "method": tuple(plain["method"]),
            "notes": tuple(plain["notes"]),
        }
    )


def _number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "none"
    is_whole = value == int(value) and not unit  # a count
    text = f"{value:,.0f}" if is_whole or abs(value) >= 100 else f"{value:,.3f}"
    return f"{text} {unit}".strip()

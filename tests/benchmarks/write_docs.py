"""Writes figures into docs/benchmarks.md, between its markers: `... write_docs FILE.json`.

The prose around the markers is written by hand and stays; what stands between them is replaced.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import ROOT
from tests.benchmarks.report import FIGURE_HEADS, SERIES_HEADS, Result, load, table

__all__ = ["write"]

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: begin (written by `make bench`) -->", "<!-- figures: end -->"


def write(figures: Path, page: Path = PAGE) -> None:
    """Replace what stands between the markers.

    Raises:
        ValueError: the page has no markers.
    """
    results, head = load(figures)
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page} must have the lines {BEGIN!r} and {END!r}, once each.")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{_body(results, head)}\n{END}{after}")
    print(f"{page} is up to date with {figures}.")


def _body(results: Sequence[Result], head: dict[str, Any]) -> str:
    parts = []
    if head.get("is_preliminary"):
        parts.append(
            "> **Preliminary.** Few trials, or other work on the machine at the same time."
        )
    parts.append("### Where and when")
    about = [(f"{name}", value) for name, value in head.get("machine", {}).items()]
    if "took_s" in head:
        about.append(("whole run", f"{head['took_s'] / 60:.0f} minutes"))
    parts.append(table(("", ""), about, markdown=True))
    parts.append("### Targets")
    rows = [
        (result.name, *figure.row)
        for result in results
        for figure in result.figures
        if figure.target is not None
    ]
    parts.append(table(("benchmark", *FIGURE_HEADS), rows, markdown=True))
    parts.append("### What fell short")
    parts.append(_shortfall(results, head.get("failed", [])))
    for result in results:
        parts.extend(_section(result))
    return "\n\n".join(parts) + "\n"


def _shortfall(results: Sequence[Result], failed: Sequence[str]) -> str:
    lines = [f"- `{name}` did not run to its end." for name in failed]
    for result in results:
        for figure in result.figures:
            if figure.is_met is False:
                _, value, target, _ = figure.row
                lines.append(f"- {result.title}: {figure.name} is {value}, the target {target}.")
    return "\n".join(lines) or "Nothing: every target is met."


def _section(result: Result) -> list[str]:
    when = f" ({result.measured})" if result.measured else ""
    parts = [f"### {result.title}", f"`{result.command}`{when}"]
    if result.method:
        parts.append("\n".join(f"- {sentence}" for sentence in result.method))
    others = [figure.row[:2] for figure in result.figures if figure.target is None]
    if others:
        parts.append(table(FIGURE_HEADS[:2], others, markdown=True))
    if result.series:
        rows = [series.row for series in result.series if series.count]
        parts.append(table(SERIES_HEADS, rows, markdown=True))
    parts.extend(f"In this run: {note}" for note in result.notes)
    if result.text:
        # A Markdown table of its own, or plain text.
        is_table = result.text.startswith("|")
        parts.append(result.text if is_table else f"```text\n{result.text}\n```")
    return parts


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.benchmarks.write_docs FILE.json")
    write(Path(sys.argv[1]))

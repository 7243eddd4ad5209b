"""Reads the required metrics from the text of one agent's `/metrics`. Pure."""

from collections.abc import Collection, Mapping

from elasticd.telemetry.metrics.catalog import by_name
from elasticd.telemetry.metrics.exposition import parsed

__all__ = ["Labels", "Scrape", "scraped"]

Labels = tuple[str, ...]
"""The values of a metric's labels, in the order of the list."""
Scrape = Mapping[str, Mapping[Labels, float]]
"""The series by the metric's name; metrics without a series are left out."""


def scraped(text: str, names: Collection[str]) -> Scrape | None:
    """Return the series of these metrics; None if an agent of another version wrote other labels.

    Lines of other metrics are ignored.
    """
    starts = tuple(names)
    lines = "\n".join(line for line in text.split("\n") if line.startswith(starts))
    found: dict[str, dict[Labels, float]] = {}
    for name, labels, value in parsed(lines):
        if name in names:
            if len(labels) != len(by_name(name).labels):
                return None
            found.setdefault(name, {})[labels] = value
    return found

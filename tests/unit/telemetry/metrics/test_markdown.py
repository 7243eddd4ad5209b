"""docs/metrics.md has the list of the code, and none of its own."""

from pathlib import Path

import pytest

from elasticd.telemetry.metrics.catalog import CATALOG
from elasticd.telemetry.metrics.markdown import page_with_list

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"


def test_page_has_the_list_of_the_code() -> None:
    """Else: `python -m elasticd.telemetry.metrics.markdown docs/metrics.md`."""
    page = PAGE.read_text()
    assert page == page_with_list(page)
    assert all(f"| `{metric.name}` |" in page for metric in CATALOG)


def test_page_without_a_place_for_it_is_refused() -> None:
    """Somebody took the marks away."""
    with pytest.raises(ValueError, match="must have the lines"):
        page_with_list("# Metrics\n")

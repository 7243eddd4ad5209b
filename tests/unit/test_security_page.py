"""The threat model names tests that there are, and says the most important thing first."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| **")]
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


@pytest.mark.parametrize("row", ROWS, ids=[row.split("**")[1] for row in ROWS])
def test_each_row_has_tests_that_there_are(row: str) -> None:
    """And all of its cells are filled."""
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 5 and all(cells)
    named = NAMED.findall(cells[-1])
    assert named
    for path, name in named:
        text = (ROOT / "tests" / path).read_text()
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{path}::{name}"


def test_every_interface_has_a_row() -> None:
    """Those that a stranger would look for."""
    told = " ".join(row.split("|")[1] for row in ROWS).lower()
    words = [
        *("etcd", "agent's http", "worker sockets", "pool", "keeper", "checkpoint storage"),
        "chaos in a cluster",
        *("prometheus", "operator", "api objects", "bundle", "command line", "dashboard"),
    ]
    assert [word for word in words if word not in told] == []


def test_it_says_first_who_may_run_code() -> None:
    """All else rests on it; whoever reads one sentence reads this one."""
    first = PAGE.split("\n\n")[1]
    assert first.startswith("**Who may submit a job may run code as the agents' user.")
    assert "one circle of\ntrust" in first

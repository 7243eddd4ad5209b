"""An agent ends all children that it does not know; in a test these would be those of the run."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures.pool import ChildrenOfTest

TESTS = Path(__file__).parents[3]


def test_children_of_the_test_run_are_no_orphans() -> None:
    """The fork servers of other tests are children of this process too."""
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            ChildrenOfTest().end(2**22 + 1)
            assert other.poll() is None
        finally:
            other.kill()


def test_no_test_takes_the_children_of_the_run_for_orphans() -> None:
    """An agent's own `Children` would kill and reap the fork servers that later tests need."""
    assert [where for path in sorted(TESTS.rglob("*.py")) for where in ends_orphans(path)] == []


def ends_orphans(path: Path) -> Iterator[str]:
    """Say where a file makes `Children`, or an agent that is given none and makes its own."""
    tree = ast.parse(path.read_text())
    names = {
        name.asname or name.name: name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module in {"elasticd_agent.agent", "elasticd_agent.pod.orphans"}
        for name in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = names.get(node.func.id, "")
            given = len(node.args) + len(node.keywords)
            if called == "Children" or (called == "Agent" and given < 2):
                yield f"{path.relative_to(TESTS)}:{node.lineno}"

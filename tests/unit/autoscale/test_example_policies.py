"""The policies to copy are policies, and the guide shows them as they are."""

from pathlib import Path

import pytest

from elasticd.autoscale.explain.policy_text import policy_rules
from elasticd.autoscale.policy_file.parser import parsed

DOCS = Path(__file__).parents[3] / "docs"
RULES = {
    "throughput.toml": ("target", "idle"),
    "worth.toml": ("goodput",),
    "deadline.toml": ("deadline",),
    "budget.toml": ("goodput", "budget"),
}


@pytest.mark.parametrize("name", RULES)
def test_example_is_read_and_has_the_rules_that_it_says(name: str) -> None:
    """A file that somebody copies works."""
    path = DOCS / "examples" / "policies" / name
    policy = parsed(path.read_text(), file=str(path), now_unix_s=1_700_000_000.0)
    assert policy_rules(policy) == RULES[name]


def test_every_example_is_known_here_and_stands_in_the_guide() -> None:
    """A new one is added to both."""
    files = {path.name for path in (DOCS / "examples" / "policies").glob("*.toml")}
    assert files == set(RULES)
    guide = (DOCS / "guides" / "autoscaling.md").read_text()
    for name in files:
        assert f"(../examples/policies/{name})" in guide, name

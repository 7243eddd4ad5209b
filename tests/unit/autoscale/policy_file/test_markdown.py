"""docs/policy-file.md has the keys of the code, and its example is a policy."""

import re
from pathlib import Path

import pytest

from elasticd.autoscale.policy_file.markdown import page_with_keys
from elasticd.autoscale.policy_file.parser import parsed

PAGE = Path(__file__).parents[4] / "docs" / "policy-file.md"


def test_page_has_the_keys_of_the_code() -> None:
    """Else: `python -m elasticd.autoscale.policy_file.markdown docs/policy-file.md`."""
    page = PAGE.read_text()
    assert page == page_with_keys(page)
    assert "| `least_share` |" in page


def test_page_shows_a_policy_that_is_taken() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    policy = parsed(example, file="policy.toml", now_unix_s=0.0)
    assert policy.target is not None and policy.goodput is not None


def test_page_without_a_place_for_it_is_refused() -> None:
    """Somebody took the marks away."""
    with pytest.raises(ValueError, match="must have the lines"):
        page_with_keys("# The policy file\n")

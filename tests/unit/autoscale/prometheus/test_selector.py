"""Which series an expression rests on: all of PromQL's forms, by a lexer alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.prometheus.selector import selectors
from tests.fixtures.promql_forms import FORMS


@pytest.mark.parametrize("expression", FORMS)
def test_selectors_of_every_form_are_found(expression: str) -> None:
    """No function, keyword, label, string or number is one; no series is left out."""
    assert list(selectors(expression)) == FORMS[expression]


@pytest.mark.parametrize("expression", ["", "{", 'x{a="', "x{a='b", "sum(", ")", "[", "by (", '"'])
def test_what_is_no_promql_does_no_harm(expression: str) -> None:
    """Prometheus will refuse it, in its own words."""
    assert len(selectors(expression)) <= 1


@given(st.text(alphabet="xy(){}[]\"'`#\n =,by0.sum\\", max_size=60))
def test_any_text_is_gone_through(expression: str) -> None:
    """It always ends, and finds each selector once."""
    found = selectors(expression)
    assert len(set(found)) == len(found)

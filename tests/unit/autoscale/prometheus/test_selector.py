"""Which series an expression rests on: all of PromQL's forms, by a lexer alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.prometheus.selector import selectors

EXPRESSIONS = {
    "up": ["up"],
    'up{job="x"}': ['up{job="x"}'],
    'up  {job="x", a=~"}"}': ['up{job="x", a=~"}"}'],
    '{__name__="up"}': ['{__name__="up"}'],
    '{"my.metric", a="b"}': ['{"my.metric", a="b"}'],
    "sum(up)": ["up"],
    "SUM by (a, b) (rate(steps_total[5m]))": ["steps_total"],
    "sum without(a)(x) / on(b) group_left(c, d) y": ["x", "y"],
    "sum(rate(x[1m:5s] offset 5m)) - rate(x[30s] @ end())": ["x"],
    "sum by (a) (x) or sum (y) unless z and w": ["x", "y", "z", "w"],
    "sum (y) by (a)": ["y"],
    'count_values("up", x) == bool 3': ["x"],
    "histogram_quantile(0.99, sum by (le) (rate(a_bucket{job='j'}[5m])))": ["a_bucket{job='j'}"],
    'label_replace(x, "a", "$1", "b", "(y.*)")': ["x"],
    "x or vector(0)": ["x"],
    "x atan2 y ^ -Inf * 0x1f + 1e5 - .5e-3 > NaN": ["x", "y"],
    "hour() > bool 8": [],
    "time() - 5": [],
    "job:rate:5m offset -1h30m": ["job:rate:5m"],
    "quantile_over_time(0.9, x[1h])": ["x"],
    "topk(3, x) # y is not asked": ["x"],
    "x # {\n + y": ["x", "y"],
    "x{a='it is \\'q\\' }', b=`c\"}`}": ["x{a='it is \\'q\\' }', b=`c\"}`}"],
    'x{a="b" # }\n}': ['x{a="b" \n}'],
    'sum{a="b"}': ['sum{a="b"}'],
    'x or {a="b"}': ["x", '{a="b"}'],
    "x + x{} + x": ["x", "x{}"],
    "(x)": ["x"],
    "max_over_time((x > 1)[10m:1m])": ["x"],
    "x @ 1609746000 + y @ start()": ["x", "y"],
    "absent(nothing{a='b'})": ["nothing{a='b'}"],
    "sum_of_all": ["sum_of_all"],
    "count(x) by (count)": ["x"],
}
"""Each is PromQL that a Prometheus of 2.42 takes, but for names in quotes."""


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_selectors_of_every_form_are_found(expression: str) -> None:
    """No function, keyword, label, string or number is one; no series is left out."""
    assert list(selectors(expression)) == EXPRESSIONS[expression]


@pytest.mark.parametrize("expression", ["", "{", 'x{a="', "x{a='b", "sum(", ")", "[", "by (", '"'])
def test_what_is_no_promql_does_no_harm(expression: str) -> None:
    """Prometheus will refuse it, in its own words."""
    assert len(selectors(expression)) <= 1


@given(st.text(alphabet="xy(){}[]\"'`#\n =,by0.sum\\", max_size=60))
def test_any_text_is_gone_through(expression: str) -> None:
    """It always ends, and finds each selector once."""
    found = selectors(expression)
    assert len(set(found)) == len(found)

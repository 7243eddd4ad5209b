"""The Prometheus of the chaos runner, heard by the client that autoscalers have."""

import math

import pytest

from chaos.jobs.scripted_prometheus import ABSURD, TURN_S, respond
from elasticd.autoscale.prometheus.answer import QueryAnswer, answered
from elasticd.autoscale.prometheus.batch import apart, union
from elasticd.autoscale.prometheus.freshness import age_queries, age_s
from elasticd.autoscale.prometheus.query_value import reading

QUERY = 'max(chaos_load{job_name="x"})'
AGES = age_queries(QUERY, 5.0)


def heard(order: str, now_s: float = 0.0) -> float | None:
    """Return the number that an autoscaler takes from it; None: it holds."""
    said = {each: answered(*respond(each, order, now_s)) for each in (QUERY, *AGES)}
    found = reading(said[QUERY], age_s(said[each] for each in AGES), max_age_s=5.0, back_s=0.0)
    return found.value


def test_the_truth_is_heard_alone_and_among_others() -> None:
    assert heard("truth 3") == 3.0
    both = answered(*respond(union((QUERY, *AGES)), "truth 2", 0.0))
    assert isinstance(both, QueryAnswer)
    parts = apart(both, (QUERY, *AGES))
    assert parts is not None
    assert [parts[each].samples[0].text for each in (QUERY, *AGES)] == ["2", "1"]


@pytest.mark.parametrize("how", ABSURD)
def test_no_absurd_answer_is_a_number_to_go_by(how: str) -> None:
    value = heard("absurd", ABSURD.index(how) * TURN_S)
    assert value is None or math.isnan(value)

"""How old an answer is: what is asked, and what the answers mean."""

from dataclasses import replace

from elasticd.autoscale.prometheus.answer import QueryAnswer, QueryFailure, Sample
from elasticd.autoscale.prometheus.freshness import Clock, age_queries, age_s
from elasticd.records.autoscale.held import HoldReason


def age(text: str) -> QueryAnswer:
    return QueryAnswer(kind="vector", samples=(Sample(at_s=1.0, text=text),))


NOTHING = QueryAnswer(kind="vector")


def test_each_selector_is_asked_for_the_age_of_its_oldest_series() -> None:
    """By Prometheus' own clock: ours does not occur."""
    assert age_queries('sum(rate(x{a="b"}[5m])) / sum(y)', 60.0) == (
        'time() - min(timestamp(x{a="b"}))',
        "time() - min(timestamp(y))",
    )
    assert age_queries("hour()", 60.0) == ()


def test_ages_beyond_the_look_back_are_seen_by_a_subquery() -> None:
    """An instant selector finds nothing that is older than five minutes."""
    (query,) = age_queries("x", 900.0)
    assert query == "time() - min(timestamp(x) or max_over_time(timestamp(x)[900s:60s]))"


def test_oldest_of_all_selectors_counts() -> None:
    """One that has no series counts for nothing beside one that has; none at all is no age."""
    assert age_s([age("2"), age("7.5"), NOTHING]) == 7.5
    assert age_s([NOTHING, NOTHING]) is None
    assert age_s([age("NaN")]) is None
    assert age_s([age("-0.2")]) == 0.0  # A sample of the very millisecond.


def test_one_failure_fails_all() -> None:
    """Half of the ages may leave out the old one."""
    failure = QueryFailure(why=HoldReason.UNREACHABLE, detail="No answer.")
    assert age_s([age("2"), failure]) is failure
    warned = age_s([age("2"), replace(age("3"), warnings=("a store is away",))])
    assert isinstance(warned, QueryFailure) and warned.why is HoldReason.WARNING


def test_clock_that_was_put_back_is_seen_until_it_has_caught_up() -> None:
    """A few seconds are two Prometheus behind one address; no time is no news."""
    clock = Clock()
    assert clock.back_s(1000.0) == 0
    assert clock.back_s(996.0) == 0
    assert clock.back_s(400.0) == 600
    assert clock.back_s(None) == 0
    assert clock.back_s(900.0) == 100
    assert clock.back_s(1001.0) == 0


def test_clock_that_is_wrong_all_the_time_is_none_of_our_business() -> None:
    """It is never compared with ours."""
    clock = Clock()
    assert [clock.back_s(s) for s in (5.0, 20.0, 35.0)] == [0, 0, 0]

"""How fast counters rise, by successive scrapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.direct.history import CounterHistory


def rate_of(*rounds: tuple[float, dict[str, float]], window_s: float = 60.0) -> float | None:
    history = CounterHistory(window_s)
    for at_s, values in rounds:
        history.add(at_s, values)
    return history.rate()


def test_one_scrape_is_no_rate() -> None:
    """Nor are two at one moment."""
    assert rate_of() is None
    assert rate_of((0, {"a": 5})) is None
    assert rate_of((0, {"a": 5}), (0, {"a": 6})) is None


def test_nodes_are_summed() -> None:
    assert rate_of((0, {"a": 5, "b": 0}), (10, {"a": 25, "b": 10})) == 3.0


def test_counter_that_fell_began_anew() -> None:
    """What it has since then has risen; what it lost has not fallen."""
    assert rate_of((0, {"a": 1000}), (10, {"a": 1020}), (20, {"a": 30})) == 2.5


def test_counter_that_comes_later_has_not_risen_by_what_it_had() -> None:
    """A node that was not asked before may have counted for days."""
    assert rate_of((0, {"a": 0}), (10, {"a": 10, "b": 10**9}), (20, {"a": 20, "b": 10**9})) == 1.0


def test_counter_that_goes_and_comes_back_rose_meanwhile() -> None:
    assert rate_of((0, {"a": 0, "b": 0}), (10, {"a": 0}), (20, {"a": 0, "b": 20})) == 1.0


def test_only_the_window_counts() -> None:
    """One scrape that is as old as the window is part of it: so it is whole."""
    rounds = [(float(t), {"a": 0.0 if t < 100 else (t - 100) * 2.0}) for t in range(0, 161, 15)]
    assert rate_of(*rounds) == pytest.approx(100 / 60)
    assert rate_of(*rounds, window_s=30.0) == 2.0
    assert rate_of((0, {"a": 0}), (500, {"a": 500})) == 1.0  # A gap leaves no other one.


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20))
def test_rate_of_whatever_counters_say_is_never_negative(values: list[float]) -> None:
    rate = rate_of(*((float(at), {"a": value}) for at, value in enumerate(values)))
    assert rate is not None and rate >= 0

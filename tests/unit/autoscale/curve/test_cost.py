"""What a change of size costs: the mean of those seen, and a stated number before."""

import math

import pytest

from elasticd.autoscale.curve.cost import (
    IN_PROCESS_COST_S,
    RESTART_COST_S,
    change_cost_s,
    with_change_cost,
)
from elasticd.records.autoscale.curve import Curve


def test_before_the_first_change_a_cost_is_assumed() -> None:
    assert change_cost_s(Curve(), is_in_process=True) == (IN_PROCESS_COST_S, False)
    assert change_cost_s(Curve(), is_in_process=False) == (RESTART_COST_S, False)


def test_the_cost_is_the_mean_of_those_seen() -> None:
    curve = with_change_cost(Curve(), [0.2, 0.4])
    assert change_cost_s(curve, is_in_process=True)[0] == pytest.approx(0.3)
    assert curve.changes == 2


def test_a_change_that_cost_nothing_was_seen() -> None:
    assert change_cost_s(with_change_cost(Curve(), [0.0]), is_in_process=False) == (0.0, True)


def test_a_cost_that_grows_is_followed() -> None:
    curve = with_change_cost(Curve(), [1.0] * 1000 + [10.0] * 30)
    assert curve.change_cost_s == pytest.approx(10.0, rel=0.05)


def test_what_is_no_duration_is_passed_over() -> None:
    assert with_change_cost(Curve(), [math.nan, math.inf, -1.0]) == Curve()

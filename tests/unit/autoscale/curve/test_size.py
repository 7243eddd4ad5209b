"""The mean of a size: follows a slow change, jumps with a real one, ignores a single window."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.curve.estimate import measured_sizes, step_s
from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import refused, with_windows
from elasticd.records.autoscale.curve import SIZES_LIMIT, Curve, SizeMeasured
from tests.unit.autoscale.curve.curve_scene import measured, window


def _at(curve: Curve, nodes: int) -> SizeMeasured:
    return next(size for size in curve.sizes if size.nodes == nodes)


def test_newer_windows_count_more() -> None:
    curve = with_windows(Curve(), [window(2, 1.0), window(2, 1.04)])
    assert 1.02 < _at(curve, 2).step_s < 1.04


def test_longer_windows_count_more() -> None:
    curve = with_windows(Curve(), [window(2, 1.0, steps=1000), window(2, 1.04, steps=10)])
    assert _at(curve, 2).step_s == pytest.approx(1.0, abs=0.002)


def test_spread_is_what_the_windows_differ_by() -> None:
    curve = with_windows(Curve(), [window(2, s) for s in (1.0, 1.04) * 20])
    assert _at(curve, 2).spread_s == pytest.approx(0.02, rel=0.1)
    assert _at(curve, 2).windows == 40


def test_one_window_far_from_the_mean_is_noise() -> None:
    curve = with_windows(measured({2: 1.0}, windows=10), [window(2, 3.0)])
    assert _at(curve, 2).step_s == pytest.approx(1.0)
    after = with_windows(curve, [window(2, 1.0)])
    assert _at(after, 2).far_step_s == 0.0
    assert _at(after, 2).spread_s > 0.3, "and it is remembered as noise"


def test_three_windows_far_from_the_mean_are_another_job() -> None:
    far = [window(2, 2.0), window(2, 3.0), window(2, 3.1)]
    curve = with_windows(measured({2: 1.0, 4: 0.6}, windows=50), far)
    assert _at(curve, 2).windows == 2
    assert _at(curve, 2).step_s == pytest.approx(3.06, abs=0.05), "the first one had both in it"


def test_two_windows_that_are_much_faster_are_another_job() -> None:
    """No neighbour and no disk makes a step shorter, as they make it longer for a while."""
    before = measured({2: 1.0, 4: 0.6}, windows=50)
    curve = with_windows(before, [window(2, 0.7), window(2, 0.4)])
    assert [size.nodes for size in measured_sizes(curve)] == [2]
    assert _at(curve, 2).step_s == pytest.approx(0.4), "the first one had both in it"
    for little in ([0.7], [0.7, 0.8], [2.0, 2.0]):
        curve = with_windows(before, [window(2, seconds) for seconds in little])
        assert [size.nodes for size in measured_sizes(curve)] == [2, 4]


def test_windows_on_both_sides_are_noise() -> None:
    far = [window(2, seconds) for seconds in (3.0, 0.3, 3.0, 3.0)]
    curve = with_windows(measured({2: 1.0}, windows=10), far)
    assert _at(curve, 2).windows > 2


def test_of_another_job_the_other_sizes_keep_their_shape_and_are_not_measured() -> None:
    before = measured({1: 2.0, 2: 1.0, 4: 0.6}, windows=5)
    after = fitted(with_windows(refused(before, 4), [window(2, 3.0)] * 3))
    assert [size.nodes for size in measured_sizes(after)] == [2]
    seconds, is_measured = step_s(after, 4)
    assert seconds == pytest.approx(1.8, rel=0.05)
    assert not is_measured
    assert after.refused == ()


def test_a_size_that_is_measured_again_forgets_the_job_before() -> None:
    before = with_windows(measured({2: 1.0, 4: 0.6}, windows=5), [window(2, 3.0)] * 3)
    assert _at(with_windows(before, [window(4, 0.9)]), 4).step_s == 0.9


def test_a_shape_that_the_job_no_longer_has_is_given_up() -> None:
    """2 nodes take three times as long now, and so would 4 and 8; but 4 do not take so long."""
    before = measured({2: 1.0, 4: 0.6, 8: 0.4}, windows=5)
    after = with_windows(before, [window(2, 3.0)] * 3)
    assert [size.nodes for size in after.sizes] == [2, 4, 8]
    assert [size.nodes for size in with_windows(after, [window(4, 1.8)]).sizes] == [2, 4, 8]
    assert [size.nodes for size in with_windows(after, [window(4, 1.35)]).sizes] == [2, 4]
    assert [size.nodes for size in with_windows(after, [window(5, 1.0)]).sizes] == [2, 5]


def test_what_one_size_drifts_by_the_others_have_drifted_by() -> None:
    slower = [window(2, 1.0 + 0.004 * number) for number in range(100)]
    curve = with_windows(measured({2: 1.0, 4: 0.6}, windows=10), slower)
    assert [size.nodes for size in measured_sizes(curve)] == [2]
    assert _at(curve, 4).step_s == pytest.approx(0.6 * 1.4, rel=0.06)


def test_noise_is_no_drift() -> None:
    noisy = [window(2, 1.0 + 0.03 * (-1) ** number) for number in range(200)]
    curve = with_windows(measured({2: 1.0, 4: 0.6}, windows=10), noisy)
    assert _at(curve, 4).step_s == 0.6


def test_a_slow_change_is_followed() -> None:
    seconds = [1.0 + 0.01 * number for number in range(100)]
    curve = with_windows(Curve(), [window(2, each) for each in seconds])
    assert _at(curve, 2).step_s == pytest.approx(seconds[-1], rel=0.03)


def test_age_alone_leaves_a_size_measured() -> None:
    curve = with_windows(measured({2: 1.0}), [window(4, 0.6)] * 2000)
    assert step_s(fitted(curve), 2) == (1.0, True)
    assert _at(curve, 2).steps < 2.0


def test_the_newest_sizes_are_kept() -> None:
    curve = Curve()
    for nodes in range(1, SIZES_LIMIT + 11):
        curve = with_windows(curve, [window(nodes, 1.0)], at_unix_s=float(nodes))
    assert len(curve.sizes) == SIZES_LIMIT
    assert curve.sizes[0].nodes == 11


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_measurement_is_passed_over(seconds: float) -> None:
    assert with_windows(Curve(), [window(2, seconds)]) == Curve()


@given(st.lists(st.floats(0.98, 1.02), min_size=1, max_size=60))
def test_the_mean_stays_among_its_windows(factors: list[float]) -> None:
    curve = with_windows(Curve(), [window(2, each) for each in factors])
    assert min(factors) - 1e-9 <= _at(curve, 2).step_s <= max(factors) + 1e-9
    assert _at(curve, 2).spread_s <= (max(factors) - min(factors)) / 2 + 1e-9

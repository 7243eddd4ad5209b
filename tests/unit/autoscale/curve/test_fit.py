"""t(n) = a + b/n + c(n-1): recovered where it is known, optimistic where it is not, never NaN."""

import math
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.autoscale.curve.estimate import error_share, fit_s, step_s, steps
from elasticd.autoscale.curve.fit import SETS, STEPS_ENOUGH, fitted
from elasticd.autoscale.curve.size import with_windows
from elasticd.records.autoscale.curve import Curve, SizeMeasured
from tests.unit.autoscale.curve.curve_scene import curve_of, measured, window

SECONDS = st.floats(min_value=1e-6, max_value=1e6)


@given(
    a=st.floats(0.0, 10.0),
    b=st.floats(0.1, 10.0),
    c=st.floats(0.0, 0.5),
    unit_s=st.sampled_from([1e-6, 1e-3, 1.0, 1e5]),
)
def test_a_curve_of_that_form_is_recovered(a: float, b: float, c: float, unit_s: float) -> None:
    def shape(nodes: int) -> float:
        return (a + b / nodes + c * (nodes - 1)) * unit_s

    curve = curve_of(shape, 1, 2, 5, 12)
    for nodes in range(1, 25):
        assert step_s(curve, nodes)[0] == pytest.approx(shape(nodes), rel=1e-4)


def test_one_size_alone_scales_linearly_until_it_is_known_better() -> None:
    curve = measured({3: 1.0})
    assert step_s(curve, 3) == (1.0, True)
    assert step_s(curve, 6) == (0.5, False)


def test_two_sizes_saturate_if_that_explains_them() -> None:
    curve = measured({1: 1.0, 2: 0.6})
    assert [curve.a, curve.b, curve.c] == pytest.approx([0.2, 0.8, 0.0])


def test_two_sizes_that_get_worse_have_their_best_between_them() -> None:
    curve = measured({1: 1.0, 8: 1.2})
    assert curve.a == 0.0
    assert step_s(curve, 3)[0] < 0.7


def test_within_the_noise_the_most_optimistic_fit_counts() -> None:
    """c is what three noisy sizes cannot tell: by the least error 8 nodes would not be tried."""
    noisy = [(1, 1.0), (1, 1.04), (2, 0.52), (2, 0.5), (4, 0.275), (4, 0.265)]
    curve = fitted(with_windows(Curve(), [window(nodes, s) for nodes, s in noisy]))
    assert curve.c == 0.0
    exact = measured({1: 1.02, 2: 0.51, 4: 0.27})
    assert exact.c > 0.0


def test_more_steps_weigh_more_and_a_measured_size_beats_the_fit() -> None:
    windows = [window(1, 1.0, steps=100), window(2, 0.5, steps=100), window(4, 0.5, steps=1)]
    curve = Curve(is_superlinear=True)
    curve = fitted(with_windows(curve, [*windows, window(8, 0.125, steps=100)]))
    assert fit_s(curve, 4) == pytest.approx(0.25, rel=0.1)
    assert step_s(curve, 4) == (0.5, True)


def test_behind_a_cliff_a_size_is_not_taken_for_what_it_would_be_before_it() -> None:
    curve = measured({1: 1.0, 2: 0.5, 4: 0.25, 8: 0.5})
    assert step_s(curve, 9)[0] > 0.4
    assert step_s(curve, 5)[0] < step_s(curve, 7)[0] < 0.5


def test_nothing_measured_says_nothing() -> None:
    curve = fitted(Curve())
    assert step_s(curve, 4) == (0.0, False)
    assert steps(curve, range(1, 9)) == ()
    assert error_share(curve, 4) == 1.0


@given(
    st.lists(
        st.tuples(st.integers(1, 4096), SECONDS, st.integers(1, 10**6)), min_size=1, max_size=12
    )
)
@settings(max_examples=80, deadline=None)
def test_whatever_was_measured_the_curve_is_finite_and_above_0(
    found: list[tuple[int, float, int]],
) -> None:
    windows = [window(nodes, seconds, steps=count) for nodes, seconds, count in found]
    curve = fitted(with_windows(Curve(), windows))
    assert min(curve.a, curve.b, curve.c) >= 0.0
    assert math.isfinite(curve.a + curve.b + curve.c)
    for nodes in (1, 2, 3, 7, 64, 4095, 4096):
        seconds, _ = step_s(curve, nodes)
        assert math.isfinite(seconds)
        assert seconds > 0.0
        assert math.isfinite(error_share(curve, nodes))


@pytest.mark.parametrize(
    "sizes",
    [
        {4094: 1e6, 4095: 1e6, 4096: 1e6},
        {1: 1e-6, 4096: 1e6},
        {1: 1e6, 4096: 1e-6},
        {2: 1.0, 4: 3.0},
        {1: 1.0, 2: 0.1, 3: 0.001},
    ],
)
def test_numbers_at_the_edge_have_a_fit(sizes: dict[int, float]) -> None:
    curve = measured(sizes)
    assert all(
        math.isfinite(step.seconds) and step.seconds > 0 for step in steps(curve, range(1, 64))
    )
    assert all(step_s(curve, nodes) == (seconds, True) for nodes, seconds in sizes.items())


def test_the_error_grows_away_from_what_was_measured() -> None:
    curve = measured({1: 1.0, 2: 0.6, 4: 0.4}, windows=2)
    assert error_share(curve, 4) < error_share(curve, 5) < error_share(curve, 8)
    assert error_share(curve, 8) < error_share(curve, 16)


@pytest.mark.parametrize("seed", range(60))
def test_fit_is_what_a_general_solver_finds(seed: int) -> None:
    """Of 1 to 16 sizes with noise, some with a cliff: all sets of columns by numpy's solver."""
    drawn = random.Random(seed)
    a, b, c = drawn.choice((0.0, drawn.random())), drawn.random(), drawn.choice((0.0, 0.02))
    cliff = drawn.choice((99, 8))
    curve = Curve(
        sizes=tuple(
            SizeMeasured(
                nodes=nodes,
                step_s=(a + b / nodes + c * (nodes - 1))
                * (1.6 if nodes > cliff else 1.0)
                * drawn.gauss(1.0, 0.02),
                steps=drawn.uniform(1.0, 2.0 * STEPS_ENOUGH),
            )
            for nodes in sorted(drawn.sample(range(1, 33), drawn.randint(1, 16)))
        )
    )
    found = fitted(curve)
    assert [found.a, found.b, found.c] == pytest.approx(_by_numpy(curve), rel=1e-6, abs=1e-9)


def _by_numpy(curve: Curve) -> list[float]:
    """Without noise that is known of: the first set whose error is the least."""
    nodes = np.array([size.nodes for size in curve.sizes], dtype=float)
    weights = np.sqrt([min(size.steps, STEPS_ENOUGH) for size in curve.sizes])
    weights /= np.linalg.norm(weights)
    seconds = np.array([size.step_s for size in curve.sizes])
    columns = np.stack([np.ones_like(nodes), 1.0 / nodes, nodes - 1.0], axis=1)
    rows = columns * (weights / seconds)[:, None]
    found = []
    for chosen in SETS:
        if len(chosen) > len(nodes) or not np.all(np.any(rows[:, list(chosen)], axis=0)):
            continue
        numbers = np.linalg.lstsq(rows[:, list(chosen)], weights, rcond=None)[0]
        if numbers.min() >= 0.0:
            whole = np.zeros(3)
            whole[list(chosen)] = numbers
            found.append((whole, float(np.linalg.norm(rows @ whole - weights))))
    least = min(error for _, error in found)
    return next(whole for whole, error in found if error <= least + 1e-7).tolist()


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from elasticd.autoscale.simulator.run import Autoscaler, simulate
from tests.sim.autoscaler.draw import scenario
from tests.sim.autoscaler.policy import POLICY
trace = simulate(scenario(1, 2, 3_600.0), Autoscaler(POLICY))
sys.exit(not trace.decisions)
"""


def test_deciding_needs_no_numpy() -> None:
    """The image in which the autoscaler is deployed has none: a job is sized there as elsewhere."""
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr

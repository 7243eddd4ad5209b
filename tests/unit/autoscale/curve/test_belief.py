"""What a step may take at sizes that nobody has measured, cliffs included."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.curve.belief import MeasuredStep, believed

SIZES = tuple(range(1, 13))


def known(step_s: Mapping[int, float], error: float = 0.01) -> tuple[MeasuredStep, ...]:
    return tuple(MeasuredStep(nodes, math.log(seconds), error) for nodes, seconds in step_s.items())


def expected(
    step_s: Mapping[int, float], nodes: int, former: Mapping[int, float] | None = None
) -> float:
    """Return the seconds of a step that the belief expects at this size."""
    belief = believed(known(step_s), known(former or {}), SIZES)
    return float(belief.weights @ np.exp(belief.log_s[:, SIZES.index(nodes)]))


def test_size_between_two_that_lie_on_one_curve_lies_on_it_as_well() -> None:
    curve = {nodes: 0.1 + 1.0 / nodes for nodes in (1, 2, 4, 8)}
    assert expected(curve, 6) == pytest.approx(0.1 + 1.0 / 6, rel=0.05)


def test_rates_behind_a_cliff_grow_as_those_before_it() -> None:
    """Two more nodes behind it make steps twelve nodes of which are better than all before."""
    behind = {1: 1.0, 2: 0.5, 3: 0.6667, 4: 0.5}
    assert expected(behind, 8) == pytest.approx(0.25, rel=0.1)


def test_one_size_alone_leaves_it_open_whether_a_cliff_lies_below() -> None:
    belief = believed(known({8: 1.0}), (), SIZES)
    at_four = np.exp(belief.log_s[:, SIZES.index(4)])
    assert belief.weights[at_four < 1.0].sum() == pytest.approx(0.2, abs=0.15)


def test_shape_of_before_is_believed_again_where_a_second_size_agrees_with_it() -> None:
    """Twelve nodes were much slower than six; one size of now does not say that they still are."""
    now, former = {3: 1.0 / 3, 6: 1.0 / 6}, {1: 1.0, 8: 2.0 / 8, 12: 2.0 / 12}
    assert expected(now, 12) < 1.35 / 12
    assert 1.45 / 12 < expected(now, 12, former) < 2.0 / 12


@given(
    st.dictionaries(st.integers(1, 12), st.floats(1e-6, 1e6), min_size=1, max_size=6),
    st.dictionaries(st.integers(1, 12), st.floats(1e-6, 1e6), max_size=3),
)
def test_whatever_was_measured_the_weights_are_those_of_a_belief(
    step_s: dict[int, float], former: dict[int, float]
) -> None:
    belief = believed(known(step_s), known(former), SIZES)
    assert belief.weights.sum() == pytest.approx(1.0)
    assert (belief.weights >= 0.0).all()
    assert np.isfinite(belief.log_s).all()
    assert belief.log_s.shape == (len(belief.weights), len(SIZES))

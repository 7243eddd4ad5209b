"""What a step may take at sizes that nobody has measured, cliffs included."""

import math
from collections.abc import Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.curve.information_value import TrialQuestion, trial_answer
from elasticd.autoscale.curve.posterior import MeasuredStep, posterior_of
from tests.unit.autoscale.curve.numpy_posterior import numpy_answer, numpy_posterior_of

SIZES = tuple(range(1, 13))


def known(step_s: Mapping[int, float], error: float = 0.01) -> tuple[MeasuredStep, ...]:
    return tuple(MeasuredStep(nodes, math.log(seconds), error) for nodes, seconds in step_s.items())


def expected(
    step_s: Mapping[int, float], nodes: int, former: Mapping[int, float] | None = None
) -> float:
    """Return the seconds of a step that the posterior expects at this size."""
    posterior = posterior_of(known(step_s), known(former or {}), SIZES)
    logs = np.array(posterior.log_s)[:, SIZES.index(nodes)]
    return float(np.array(posterior.weights) @ np.exp(logs))


def test_size_between_two_that_lie_on_one_curve_lies_on_it_as_well() -> None:
    curve = {nodes: 0.1 + 1.0 / nodes for nodes in (1, 2, 4, 8)}
    assert expected(curve, 6) == pytest.approx(0.1 + 1.0 / 6, rel=0.05)


def test_rates_behind_a_cliff_grow_as_those_before_it() -> None:
    """Two more nodes behind it make steps twelve nodes of which are better than all before."""
    behind = {1: 1.0, 2: 0.5, 3: 0.6667, 4: 0.5}
    assert expected(behind, 8) == pytest.approx(0.25, rel=0.1)


def test_one_size_alone_leaves_it_open_whether_a_cliff_lies_below() -> None:
    posterior = posterior_of(known({8: 1.0}), (), SIZES)
    at_four = np.exp(np.array(posterior.log_s)[:, SIZES.index(4)])
    assert np.array(posterior.weights)[at_four < 1.0].sum() == pytest.approx(0.2, abs=0.15)


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
    """And the same as in numpy."""
    posterior = posterior_of(known(step_s), known(former), SIZES)
    weights, log_s = np.array(posterior.weights), np.array(posterior.log_s)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0.0).all()
    assert np.isfinite(log_s).all()
    assert log_s.shape == (len(weights), len(SIZES))
    other = numpy_posterior_of(known(step_s), known(former), SIZES)
    assert other.weights @ other.log_s == pytest.approx(weights @ log_s, rel=1e-6, abs=1e-6)


def drawn(random: Random) -> TrialQuestion:
    """Draw a question about a curve with or without a cliff, of which a few sizes are known."""
    high = random.choice((4, 8, 12, 16, 40))
    fixed, growing = random.choice((0.0, 0.05, 0.3)), random.choice((0.0, 0.01, 0.1))
    cliff, height = random.randint(1, high), random.choice((1.0, 1.0, 1.5, 2.2))

    def step_s(nodes: int) -> float:
        smooth = fixed + 1.0 / nodes + growing * (nodes - 1)
        return smooth * (height if nodes > cliff else 1.0)

    sizes = sorted(random.sample(range(1, high + 1), random.randint(1, min(5, high))))
    now = random.choice(sizes)
    known, former = [], []
    for nodes in range(1, high + 1):
        away = math.log(step_s(nodes) / step_s(now))
        if nodes in sizes:
            known.append(MeasuredStep(nodes, away + random.gauss(0.0, 0.01), 0.01))
        elif random.random() < 0.15:
            former.append(MeasuredStep(nodes, away + 0.1, 0.02))
    others = [nodes for nodes in range(1, high + 1) if nodes != now]
    return TrialQuestion(
        known=tuple(known),
        former=tuple(former),
        refused=tuple(nodes for nodes in others if random.random() < 0.05),
        now=now,
        low=1,
        high=high,
        turns=random.choice((0, 0, 1)),
        share=random.choice((0.1, 0.5)),
        probe=60.0,
        horizon=random.choice((300.0, 1800.0, 20_000.0)),
        cost=2.0,
    )


def test_what_a_trial_tells_is_the_same_as_in_numpy() -> None:
    """The autoscaler's image has none, so the shipped one is written without it."""
    answers = 0
    for seed in range(60):
        asked = drawn(Random(seed))
        ours, theirs = trial_answer(asked), numpy_answer(asked)
        assert (ours is None) == (theirs is None), asked
        if ours is not None and theirs is not None:
            answers += 1
            assert ours[0] == theirs[0] and ours[1] == pytest.approx(theirs[1]), asked
    assert answers > 20

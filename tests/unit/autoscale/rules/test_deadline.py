"""The deadline rule: the smallest size that makes it, and what it says when none does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.autoscale.curve.cost import with_change_cost
from elasticd.autoscale.curve.size import refused
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.deadline import propose
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import DeadlineRule, Policy
from tests.unit.autoscale.curve.curve_scene import measured
from tests.unit.autoscale.rules.rule_scene import seen

LINEAR = with_change_cost(measured({nodes: 1.0 / nodes for nodes in (1, 2, 4, 8)}, windows=2), [0])
"""A step takes 1 / n seconds, without any spread."""


def _propose(
    curve: Curve, nodes: int, left_s: float, *, steps: int = 2000, low: int = 1, high: int = 8
) -> Proposal:
    rule = DeadlineRule(steps=steps, at_unix_s=1e9 + left_s)
    policy = Policy(deadline=rule, min_nodes=low, max_nodes=high)
    return propose(rule, policy, curve, seen(nodes, high=64), Memory())


def test_it_is_the_smallest_size_that_ends_in_time() -> None:
    """1,000 steps are left: 500 s on 2 nodes, 250 s on 4."""
    proposal = _propose(LINEAR, 1, 300.0)
    assert proposal.nodes == 4
    assert proposal.promised_steps_per_s == 4.0
    assert "4 nodes make the 1000 steps that are left in 4.17 min (± 3.42 s)" in proposal.why
    assert "50 s before the deadline" in proposal.why


def test_a_job_that_has_time_is_made_smaller() -> None:
    assert _propose(LINEAR, 8, 600.0).nodes == 2


def test_it_is_not_made_smaller_on_the_edge() -> None:
    assert _propose(LINEAR, 4, 510.0).nodes == 3
    assert _propose(LINEAR, 2, 510.0).nodes == 2


def test_where_no_size_makes_it_the_soonest_is_taken_and_said_so() -> None:
    proposal = _propose(LINEAR, 2, 100.0)
    assert proposal.nodes == 8
    assert "No size makes the 1000 steps" in proposal.why
    assert "25 s after the deadline" in proposal.why


def test_a_deadline_that_is_over_is_said() -> None:
    assert "the deadline 60 s ago" in _propose(LINEAR, 2, -60.0).why


def test_more_nodes_that_end_later_are_no_help() -> None:
    curve = measured({1: 1.0, 2: 0.6, 4: 0.7, 8: 0.9}, windows=2)
    assert _propose(curve, 2, 10.0).nodes in (2, 3)


def test_the_change_itself_takes_time() -> None:
    dear = with_change_cost(measured({1: 1.0, 2: 0.5}, windows=2), [200.0])
    assert _propose(LINEAR, 1, 600.0, high=2).nodes == 2
    assert "after the deadline" in _propose(dear, 1, 600.0, high=2).why


def test_a_size_that_is_not_measured_must_make_it_with_its_error() -> None:
    curve = with_change_cost(measured({1: 1.0}, windows=2), [0.0])
    proposal = _propose(curve, 1, 510.0)
    assert proposal.nodes == 3, "2 would end 10 s before the deadline, ± 100 s"
    assert proposal.is_probe
    assert "expected" in proposal.why


def test_a_size_that_was_taken_back_is_passed_over() -> None:
    assert _propose(refused(LINEAR, 4), 1, 300.0).nodes == 5


def test_when_all_steps_are_made_it_has_no_wish() -> None:
    proposal = _propose(LINEAR, 2, 100.0, steps=1000)
    assert (proposal.nodes, proposal.held) == (None, "")
    assert proposal.why == "All 1000 steps are made."


def test_without_steps_or_a_measurement_it_is_held() -> None:
    rule = DeadlineRule(steps=2000, at_unix_s=2e9)
    job = seen(2, step=0)
    assert propose(rule, Policy(), LINEAR, job, Memory()).held == HoldReason.NO_STEPS
    assert propose(rule, Policy(), Curve(), seen(2), Memory()).held == HoldReason.NO_WINDOW
    assert propose(rule, Policy(), Curve(), seen(0), Memory()).held == HoldReason.NOT_RUNNING


@given(
    st.dictionaries(st.integers(1, 24), st.floats(0.01, 10.0), min_size=1, max_size=6),
    st.floats(-1000.0, 10_000.0),
    st.integers(1, 24),
    st.integers(1, 24),
)
@settings(max_examples=60, deadline=None)
def test_it_stays_within_the_limits_and_never_grows_to_what_is_slower(
    sizes: dict[int, float], left_s: float, one: int, other: int
) -> None:
    low, high = sorted((one, other))
    curve, nodes = with_change_cost(measured(sizes, windows=2), [0.0]), max(sizes)
    wish = _propose(curve, nodes, left_s, low=low, high=high).nodes
    assert wish is not None
    assert low <= wish <= high
    nodes = min(sizes)
    grown = _propose(curve, nodes, left_s, high=24).nodes
    assert grown is not None
    if grown in sizes and grown > nodes:
        assert sizes[grown] < sizes[nodes]


@given(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0), st.floats(100.0, 1200.0))
def test_noise_of_a_measurement_does_not_turn_it(
    first: float, second: float, left_s: float
) -> None:
    """What grew on one measurement does not shrink to where it was on the next one."""

    def at(noise: float) -> Curve:
        sizes = {nodes: (1 + 0.02 * noise) / nodes for nodes in range(1, 9)}
        return with_change_cost(measured(sizes, windows=2), [0.0])

    for nodes in (1, 2, 4):
        grown = _propose(at(first), nodes, left_s).nodes
        assert grown is not None
        if grown > nodes:
            again = _propose(at(second), grown, left_s).nodes
            assert again is not None
            assert again > nodes


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_the_unit_of_time_changes_no_choice(unit: float) -> None:
    curve = measured({n: unit / n for n in (1, 2, 4, 8)}, windows=2)
    curve = with_change_cost(curve, [0.0])
    assert _propose(curve, 1, 300.0 * unit).nodes == _propose(LINEAR, 1, 300.0).nodes

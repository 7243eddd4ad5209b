"""The goodput rule grows where it pays, shrinks where it does not, and never on noise."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.autoscale.curve.cost import with_change_cost
from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import refused, with_windows
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.goodput import ALIKE_SHARE, is_worth_as_much, propose
from elasticd.autoscale.rules.goodput_text import CANDIDATES_LIMIT
from elasticd.records.autoscale.curve import Curve, SizeMeasured
from elasticd.records.autoscale.decision import Decision, Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory, Resized
from elasticd.records.autoscale.policy import DeadlineRule, GoodputRule, Policy
from tests.unit.autoscale.curve.curve_scene import measured, window
from tests.unit.autoscale.rules.rule_scene import seen

RULE = GoodputRule()
SIZES = st.dictionaries(st.integers(1, 24), st.floats(0.01, 10.0), min_size=1, max_size=6)


def _propose(
    curve: Curve,
    nodes: int,
    *,
    rule: GoodputRule = RULE,
    policy: Policy | None = None,
    high: int = 16,
    low: int = 1,
) -> Proposal:
    policy = policy if policy is not None else Policy(goodput=rule)
    return propose(rule, policy, curve, seen(nodes, low=low, high=high), Memory())


def _sizes_until_steady(
    shape: Callable[[int], float], nodes: int, *, rule: GoodputRule = RULE, high: int = 16
) -> list[int]:
    """The sizes that a job goes through when it does what the rule says, until it stays."""
    curve, way = with_change_cost(Curve(), [0.3]), [nodes]
    for _ in range(40):
        curve = fitted(with_windows(curve, [window(nodes, shape(nodes))] * 2))
        wish = _propose(curve, nodes, rule=rule, high=high).nodes
        assert wish is not None
        if wish == nodes:
            return way
        nodes = wish
        way.append(nodes)
    raise AssertionError(f"It never settled: {way}")


# --- growing --------------------------------------------------------------------------------------


def test_an_unknown_size_is_tried_at_most_twice_as_far_as_the_largest_measured() -> None:
    proposal = _propose(measured({2: 1.0}), 2)
    assert proposal.nodes == 4
    assert proposal.is_probe
    assert proposal.was_steps_per_s == pytest.approx(1.0)
    assert proposal.promised_steps_per_s == pytest.approx(2.0)
    assert "4 nodes make 2 steps/s (expected), against 2 nodes make 1 steps/s" in proposal.why


def test_a_measured_size_is_gone_to_without_a_trial() -> None:
    proposal = _propose(measured({1: 1.0, 2: 0.5}), 1, high=2)
    assert (proposal.nodes, proposal.is_probe) == (2, False)


def test_of_sizes_that_are_worth_the_same_the_larger_is_gone_to_and_no_further() -> None:
    """Each one more is worth 0.6 % less: what is compared is the best, not the one before."""
    rates = {nodes: nodes**0.5 * (1.0 - 0.006 * (nodes - 3)) for nodes in range(3, 8)}
    curve = measured({nodes: 1.0 / rate for nodes, rate in rates.items()}, windows=4)
    assert _propose(curve, 3, low=3, high=7).nodes == 4
    assert _propose(curve, 4, low=3, high=7).nodes == 4


def test_measured_size_counts_before_a_smaller_one_that_nobody_has_measured() -> None:
    """Its error makes it no worse than one that is only expected, and that has none."""
    curve = measured({7: 1.0 / 3.12, 14: 1.0 / 3.93})
    for nodes in range(8, 14):
        curve = refused(curve, nodes)
    proposal = _propose(curve, 14, low=4, high=14)
    assert (proposal.nodes, proposal.is_probe) == (7, False)


def test_larger_size_is_kept_where_noise_may_have_taken_what_it_lacks() -> None:
    """Of 2.2 % more steps 3.8 % would pay for the node, and one window is wrong by as much."""
    tried = Decision(
        number=1,
        rule=Rule.GOODPUT,
        from_nodes=13,
        to_nodes=14,
        why="",
        was_steps_per_s=9.217,
        promised_steps_per_s=9.705,
    )
    known = {11: 1.0 / 8.1, 13: 1.0 / 9.217, 14: 1.0 / 9.417}
    assert is_worth_as_much(RULE, measured(known), tried, 9.417)
    assert not is_worth_as_much(RULE, measured(known, windows=40), tried, 9.417)
    assert not is_worth_as_much(RULE, measured(known), tried, 9.0), "not for any noise"


def test_a_change_that_costs_more_than_it_brings_is_not_made() -> None:
    curve = measured({1: 1.0, 2: 0.8}, windows=4)
    rule = GoodputRule(horizon_s=100.0, least_share=0.0)
    assert _propose(with_change_cost(curve, [10.0]), 1, rule=rule, high=2).nodes == 2
    dear = _propose(with_change_cost(curve, [30.0]), 1, rule=rule, high=2)
    assert dear.nodes == 1
    assert "30 s" in dear.why
    assert "2 nodes make 1.25 steps/s (measured), -5 steps within 100 s" in dear.why


def test_a_job_that_is_nearly_done_is_not_made_larger() -> None:
    curve = with_change_cost(measured({1: 1.0, 2: 0.6}, windows=4), [30.0])
    policy = Policy(goodput=RULE, deadline=DeadlineRule(steps=1020, at_unix_s=2e9))
    assert _propose(curve, 1, high=2).nodes == 2
    assert _propose(curve, 1, high=2, policy=policy).nodes == 1


def test_until_a_change_was_seen_its_cost_is_assumed_and_said_so() -> None:
    assert "assumed" in _propose(measured({2: 1.0}), 2).why


def test_a_size_that_was_taken_back_is_never_proposed() -> None:
    proposal = _propose(refused(measured({2: 1.0}), 4), 2)
    assert proposal.nodes == 3
    assert [each.why for each in proposal.candidates if each.nodes == 4] == ["taken back before"]


# --- shrinking ------------------------------------------------------------------------------------


def test_nodes_that_add_less_than_the_least_share_are_given_back() -> None:
    curve = measured({1: 1.0, 2: 1 / 1.9, 3: 1 / 2.6, 4: 1 / 2.75}, windows=4)
    proposal = _propose(curve, 4)
    assert proposal.nodes == 3
    assert "from 3 to 4 nodes one more added 0.195 of what a node adds on average" in proposal.why
    assert "less than 0.5 (least_share)" in proposal.why


def test_with_no_least_share_the_throughput_alone_counts() -> None:
    rule = GoodputRule(least_share=0.0)
    curve = measured({1: 1.0, 2: 0.6, 4: 0.4, 8: 0.3}, windows=4)
    assert _propose(curve, 8, rule=rule, high=8).nodes == 8


def test_fewer_nodes_that_are_faster_are_gone_to_whatever_the_share() -> None:
    curve = measured({6: 1.0, 7: 1.2, 8: 1.5}, windows=4)
    proposal = _propose(curve, 8, rule=GoodputRule(least_share=0.0), high=8)
    assert proposal.nodes is not None
    assert proposal.nodes < 5
    assert "fewer nodes are faster" in proposal.why


def test_whoever_begins_at_max_tries_half_of_it_once() -> None:
    proposal = _propose(measured({8: 1.0}), 8, high=8)
    assert (proposal.nodes, proposal.is_probe) == (4, True)
    assert _propose(measured({4: 2.0, 8: 1.0}), 8, high=8).nodes == 8


def test_no_size_is_tried_for_its_own_sake_where_that_takes_long() -> None:
    curve = with_change_cost(measured({8: 1.0}), [300.0])
    assert _propose(curve, 8, high=8).nodes == 8


# --- where it settles -----------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1, 3, 16])
@pytest.mark.parametrize(
    ("shape", "best", "turns"),
    [
        (lambda n: 1.0 / n, 16, 1),
        (lambda n: 1.0, 1, 1),
        (lambda n: 0.1 + 1.0 / n, 10, 2),
        (lambda n: 1.0 / n + (0.3 if n > 6 else 0.0), 6, 5),
        (lambda n: 1.0 / n + 0.02 * (n - 1), 4, 2),
    ],
    ids=["linear", "flat", "saturating", "cliff", "communication"],
)
def test_it_settles_near_the_best_size_and_does_not_go_round(
    shape: Callable[[int], float], best: int, turns: int, start: int
) -> None:
    way = _sizes_until_steady(shape, start)

    def worth(nodes: int) -> float:
        return 1.0 / shape(nodes) / math.sqrt(nodes)

    assert worth(way[-1]) >= 0.94 * worth(best)
    ups = [after > before for before, after in pairwise(way)]
    assert sum(first != second for first, second in pairwise(ups)) <= turns
    assert len(way) <= 12


# --- nothing to go by -----------------------------------------------------------------------------


def test_a_job_that_reports_no_steps_is_held() -> None:
    proposal = propose(RULE, Policy(), measured({2: 1.0}), seen(2, step=0), Memory())
    assert (proposal.nodes, proposal.held) == (None, HoldReason.NO_STEPS)
    assert "reported no steps" in proposal.why


def test_without_a_world_nothing_is_proposed() -> None:
    assert propose(RULE, Policy(), Curve(), seen(0), Memory()).held == HoldReason.NOT_RUNNING


def test_a_size_that_has_no_window_yet_is_waited_for() -> None:
    assert _propose(measured({2: 1.0}), 3).held == HoldReason.NO_WINDOW


def test_a_trial_lasts_as_long_as_the_policy_says() -> None:
    curve, job = measured({2: 1.0, 4: 0.5}), seen(4, now_s=100.0)
    young = Memory(resized=(Resized(at_s=60.0, delta=2),))
    assert propose(RULE, Policy(), curve, job, young).held == HoldReason.PROBE
    old = Memory(resized=(Resized(at_s=40.0, delta=2),))
    assert propose(RULE, Policy(), curve, job, old).nodes == 8


# --- properties -----------------------------------------------------------------------------------


@given(SIZES, st.integers(1, 24), st.integers(1, 24), st.integers(1, 24), st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_no_proposal_lies_outside_of_the_limits(
    sizes: dict[int, float], nodes: int, one: int, other: int, share: float
) -> None:
    low, high = sorted((one, other))
    curve = measured({**sizes, nodes: 1.0})
    rule = GoodputRule(least_share=share)
    policy = Policy(goodput=rule, min_nodes=low, max_nodes=high)
    wish = propose(rule, policy, curve, seen(nodes, high=24), Memory())
    assert wish.nodes is not None
    assert low <= wish.nodes <= high
    assert len(wish.candidates) <= CANDIDATES_LIMIT


@given(SIZES, st.sampled_from([2.0**-12, 0.25, 8.0, 4096.0]), st.floats(0.0, 5.0))
@settings(max_examples=50, deadline=None)
def test_the_unit_of_time_changes_no_choice(
    sizes: dict[int, float], unit: float, cost_s: float
) -> None:
    nodes = min(sizes)
    wishes = []
    for scale in (1.0, unit):
        curve = measured({size: seconds * scale for size, seconds in sizes.items()}, windows=2)
        curve = with_change_cost(curve, [cost_s * scale])
        rule = GoodputRule(horizon_s=600.0 * scale, probe_s=30.0 * scale)
        wishes.append(_propose(curve, nodes, rule=rule, high=24).nodes)
    assert wishes[0] == wishes[1]


def _noisy(sizes: dict[int, float], draws: tuple[float, ...], spread: float) -> Curve:
    """Both sizes by four windows: their means are wrong by up to half of the spread."""
    found = tuple(
        SizeMeasured(
            nodes=nodes,
            step_s=seconds * (1.0 + spread / 2.0 * draw),
            steps=400.0,
            spread_s=seconds * spread,
            windows=4,
        )
        for (nodes, seconds), draw in zip(sorted(sizes.items()), draws, strict=True)
    )
    others = tuple(nodes for nodes in range(1, 49) if nodes not in sizes)
    return with_change_cost(fitted(Curve(sizes=found, refused=others)), [0.0])


@given(
    st.sets(st.integers(1, 24), min_size=2, max_size=2),
    st.floats(0.8, 1.25),
    st.floats(0.0, 0.15),
    st.tuples(*[st.tuples(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))] * 2),
)
@settings(max_examples=80, deadline=None)
def test_noise_never_makes_a_change_of_direction(
    pair: set[int], worth: float, spread: float, draws: tuple[tuple[float, float], ...]
) -> None:
    """Two sizes of about one worth: what one measurement says, no other one takes back."""
    one, other = sorted(pair)
    sizes = {one: one**-0.5, other: worth * other**-0.5}
    there = [_propose(_noisy(sizes, draw, spread), one, high=24).nodes for draw in draws]
    back = [_propose(_noisy(sizes, draw, spread), other, high=24).nodes for draw in draws]
    assert not (other in there and one in back)


@given(SIZES, st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_a_larger_size_that_is_slower_by_measurement_is_never_proposed(
    sizes: dict[int, float], share: float
) -> None:
    curve = measured(sizes, windows=2)
    for nodes in sizes:
        wish = _propose(curve, nodes, rule=GoodputRule(least_share=share), high=24).nodes
        if wish in sizes and wish is not None and wish != nodes:
            worth = {each: 1.0 / sizes[each] / each**share for each in (wish, nodes)}
            # Of sizes that are worth the same, all but a hundredth, the largest is the wish.
            assert worth[wish] > worth[nodes] * (1.0 if wish < nodes else 1.0 - ALIKE_SHARE)
            assert wish < nodes or sizes[wish] < sizes[nodes]


def test_the_curve_that_changed_has_its_shape_tried_again() -> None:
    """Steps got three times as long at 16 nodes: 8 may now be better, whatever the shape says."""
    before = measured({4: 0.25, 8: 0.125, 16: 0.0625}, windows=4)
    assert _propose(before, 16).nodes == 16
    after = fitted(with_windows(before, [window(16, 0.2)] * 3))
    assert _propose(replace(after), 16).nodes == 8

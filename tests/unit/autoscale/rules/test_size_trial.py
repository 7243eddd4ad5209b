"""Sizes that are tried since the curve is not smooth: upwards once, and downwards once."""

from dataclasses import replace

import pytest

from elasticd.autoscale.curve.estimate import measured_sizes
from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import with_windows
from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.autoscale.rules.goodput import propose
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import GoodputRule, Policy
from elasticd.records.ids import Generation
from tests.unit.autoscale.rules.rule_scene import seen

RULE = GoodputRule()


def windows_of(nodes: int, rate: float, count: int = 4) -> list[MeasuredWindow]:
    """Return windows of a size in which all steps took the same time."""
    return [
        MeasuredWindow(
            generation=Generation(nodes), nodes=nodes, steps=round(6000 * rate), seconds=6000.0
        )
    ] * count


def tried(rates: dict[int, float], now: int, high: int = 16) -> tuple[int | None, bool]:
    """Return the size that is proposed after these were measured, and whether it is a trial."""
    windows = [window for nodes, rate in rates.items() for window in windows_of(nodes, rate)]
    curve = fitted(with_windows(Curve(uid="u"), windows))
    policy = Policy(goodput=RULE)
    proposal = propose(RULE, policy, curve, seen(now, high=high), Memory())
    return proposal.nodes, proposal.is_probe


def test_behind_a_cliff_the_next_doubling_is_tried_once() -> None:
    """Four nodes are slower than two by the cliff, and sixteen may be far better than either."""
    assert tried({1: 1.0, 2: 2.0, 4: 1.8}, 4) == (8, True)


def test_after_a_second_fall_the_way_leads_back() -> None:
    """A third doubling would be tried by nobody."""
    nodes, _ = tried({1: 1.0, 2: 2.0, 4: 1.6, 8: 1.2}, 8)
    assert nodes is not None and nodes < 8


def test_from_behind_a_cliff_sizes_are_tried_downwards() -> None:
    """The last good size lies next to the cliff, wherever that is."""
    rates = {1: 1.0, 2: 2.0, 4: 4.0, 8: 4.2}
    assert tried(rates, 8, high=8) == (7, True)
    assert tried({**rates, 7: 3.7}, 7, high=8) == (6, True)
    assert tried({**rates, 7: 3.7, 6: 6.0}, 6, high=8)[0] == 6


def test_smooth_curve_is_not_searched_for_a_cliff() -> None:
    """The fit says where its best size is."""
    rates = {n: 1.0 / (0.05 + 1.0 / n + 0.02 * (n - 1)) for n in (1, 2, 4, 8)}
    assert tried(rates, 4, high=16)[0] in (3, 4, 5)
    nodes, _ = tried(rates, 8, high=16)
    assert nodes is not None and nodes <= 5


@pytest.mark.parametrize("now", [1, 2, 4])
def test_curve_in_proportion_to_the_nodes_has_no_cliff(now: int) -> None:
    """It goes on by doubling."""
    rates = {nodes: float(nodes) for nodes in (1, 2, 4) if nodes <= now}
    assert tried(rates, now)[0] == 2 * now


def test_whoever_came_down_from_max_looks_further_down_once() -> None:
    """Both sizes may lie behind a cliff, and any smooth curve passes through two sizes."""
    assert tried({16: 0.57, 8: 0.41}, 8) == (4, True)
    assert tried({16: 0.57, 8: 0.41}, 16)[0] == 16, "only from the smaller one"
    assert tried({16: 1.0, 8: 0.55}, 8) == (4, True), "nodes add much behind a cliff as well"
    assert tried({16: 1.0, 8: 0.4}, 8)[0] == 16, "no cliff is so large"
    assert tried({16: 0.1, 8: 0.055}, 8)[0] == 16, "a window of four nodes takes ten minutes"
    assert tried({16: 0.57, 8: 0.41, 4: 0.3}, 4) != (2, True)


def test_sizes_before_a_cliff_are_tried_also_where_the_nodes_behind_it_are_gone() -> None:
    """It lies between ten nodes and sixteen, and eleven are left.

    The next one is tried: as far as the cliff each is better than the one before it.
    """
    rates = {4: 1.93, 8: 3.63, 10: 4.43, 16: 4.4}
    assert tried(rates, 10, high=16) == (11, True)
    assert tried({**rates, 11: 4.84}, 11, high=16) == (12, True)
    assert tried(rates, 10, high=11) == (11, True)
    assert tried(rates, 10, high=10)[0] == 10


def test_size_next_to_that_of_now_is_not_all_that_is_tried_after_a_change() -> None:
    """Eleven nodes and twelve may both lie behind a cliff."""
    curve = Curve(uid="u")
    for nodes, rate, count in ((4, 4.0, 2), (8, 6.0, 2), (11, 7.0, 9), (11, 2.0, 3)):
        curve = with_windows(curve, windows_of(nodes, rate, count))
    assert [size.nodes for size in measured_sizes(curve)] == [11]
    curve, policy = fitted(curve), Policy(goodput=RULE)
    assert propose(RULE, policy, curve, seen(11, high=12), Memory()).nodes == 5
    slow = replace(curve, sizes=tuple(replace(s, step_s=20 * s.step_s) for s in curve.sizes))
    slow = fitted(slow)
    assert propose(RULE, policy, slow, seen(11, high=16), Memory()).nodes == 16
    assert propose(RULE, policy, slow, seen(11, high=12), Memory()).nodes == 5


def test_what_lies_beyond_a_small_fall_is_tried_as_well() -> None:
    """Six nodes are worth nearly what three are, behind a cliff of which twelve would know nothing:
    a job that stopped here would make half of the steps that it could."""
    assert tried({3: 1.25, 6: 1.7}, 6, high=12) == (12, True)
    assert tried({3: 1.25, 6: 2.4}, 6, high=6)[0] == 6


def test_cliff_that_a_smooth_curve_nearly_passes_through_is_searched_on_the_way_down() -> None:
    """Eight nodes are worth more than fourteen, and eleven more than either."""
    rates = {n: 1.0 / (0.268 + 3.392 / n) for n in (1, 2, 4, 8, 14)}
    assert tried({**rates, 14: rates[14] / 1.36}, 14) == (13, True)


def changed(step_s: float) -> Curve:
    """Two nodes are slower than before the job changed, and nothing is known of now but them."""
    windows = [
        MeasuredWindow(generation=Generation(1), nodes=nodes, steps=100, seconds=100.0 * seconds)
        for nodes, seconds in (
            (1, step_s),
            (3, 0.9 * step_s),
            *[(2, 0.5 * step_s)] * 4,
            *[(2, 0.7 * step_s)] * 3,
        )
    ]
    curve = fitted(with_windows(Curve(uid="u"), windows))
    assert [size.nodes for size in measured_sizes(curve)] == [2]
    return curve


def test_after_the_job_changed_a_smaller_size_is_tried_before_a_larger_one() -> None:
    """All larger ones may lie behind a cliff, and none of them shows it. From there it goes up."""
    curve, policy = changed(1.0), Policy(goodput=RULE)
    assert propose(RULE, policy, curve, seen(2, high=4), Memory()).nodes == 1
    assert propose(RULE, policy, curve, seen(2, high=2), Memory()).nodes == 1
    assert propose(RULE, policy, curve, seen(2, low=2, high=4), Memory()).nodes == 3


def test_after_the_job_changed_a_larger_size_is_tried_first_where_a_smaller_one_takes_long() -> (
    None
):
    """A window of one node would take nine minutes: half of its steps are too much."""
    curve, policy = changed(13.0), Policy(goodput=RULE)
    assert propose(RULE, policy, curve, seen(2, high=4), Memory()).nodes == 3


def test_job_that_began_with_few_nodes_looks_below_them_once_before_it_settles() -> None:
    """Four nodes of sixteen, and all that it knows, may lie behind one cliff."""
    rates = {4: 0.543, 8: 0.819, 10: 0.88, 13: 0.912}
    curve = Curve(uid="u")
    for nodes, rate in rates.items():
        curve = with_windows(curve, windows_of(nodes, rate))
    curve, policy = replace(fitted(curve), way=1), Policy(goodput=RULE)
    proposal = propose(RULE, policy, curve, seen(13), Memory())
    assert (proposal.nodes, proposal.is_probe) == (2, True)
    assert "behind a cliff" in proposal.why
    came_up = replace(curve, turns=1)
    assert propose(RULE, policy, came_up, seen(13), Memory()).nodes != 2, "it was below already"
    assert propose(RULE, policy, curve, seen(13, low=4), Memory()).nodes != 2, (
        "nor where it may not"
    )
    halfway = replace(curve, way=-1, turns=1)
    assert propose(RULE, policy, halfway, seen(4), Memory()).nodes == 2, "another rule stopped it"
    once = tuple(replace(size, windows=1) for size in halfway.sizes)
    below = replace(halfway, sizes=once)
    assert propose(RULE, policy, below, seen(4), Memory()).nodes != 2, "it came down to look"


def test_job_that_grows_with_its_nodes_does_not_look_below() -> None:
    """No cliff is so large that two nodes would be better than sixteen."""
    curve = Curve(uid="u")
    for nodes in (4, 8, 16):
        curve = with_windows(curve, windows_of(nodes, float(nodes)))
    curve = replace(fitted(curve), way=1)
    assert propose(RULE, Policy(goodput=RULE), curve, seen(16), Memory()).nodes == 16


def test_size_before_a_cliff_is_tried_for_its_steps_where_the_worth_is_flat() -> None:
    """Eleven nodes are worth what nine are, and make a tenth more steps."""
    rates = {n: 1.0 / (0.096 + 1.122 / n) for n in (2, 4, 7, 9)}
    behind = 1.0 / (0.096 + 1.122 / 12) / 1.66
    assert tried({**rates, 12: behind}, 12, high=12) == (11, True)


def test_cliff_below_several_sizes_that_lie_behind_it_is_searched() -> None:
    """Nine nodes and ten are behind it, and eight may be better than either."""
    rates = {n: 1.0 / (0.02 + 7.06 / n) for n in (2, 5, 9, 10)}
    rates = {n: rate / (1.34 if n > 8 else 1.0) for n, rate in rates.items()}
    assert tried(rates, 10, high=10) == (8, True)


def test_job_that_is_small_already_does_not_look_further_down() -> None:
    """It looks below from half of its nodes, and not from an eighth of them."""
    assert tried({16: 0.57, 8: 0.41}, 8) == (4, True)
    assert tried({4: 0.57, 2: 0.41}, 2)[0] != 1


BEHIND = {1: 0.69, 2: 1.36, 3: 1.16, 4: 1.52}
"""From the third node on each costs more; all twelve would be better than two."""


def test_from_before_a_cliff_the_far_side_is_tried_where_there_are_nodes_for_it() -> None:
    """With six of them nothing behind the cliff can be as good as what lies before it."""
    assert tried(BEHIND, 2, high=6) == (2, False)
    assert tried(BEHIND, 2, high=12) == (8, True)
    assert tried({**BEHIND, 8: 2.86}, 8, high=12)[0] == 12


def test_far_side_that_does_not_grow_is_not_tried_again() -> None:
    """Its last doubling brought little, so the next one will as well."""
    assert tried({**BEHIND, 8: 1.7}, 2, high=16) == (2, False)


def test_what_is_known_of_the_sizes_beyond_from_before_the_job_changed_is_a_guess() -> None:
    """It falls beyond eight nodes there, and grows in proportion to them now."""
    curve = Curve(uid="u")
    for nodes, rate in {3: 3.3, 6: 4.1, 12: 3.6}.items():
        curve = with_windows(curve, windows_of(nodes, rate))
    curve = with_windows(curve, windows_of(3, 5.96, count=8))
    assert [size.nodes for size in measured_sizes(curve)] == [3]
    curve = fitted(with_windows(curve, windows_of(4, 7.3)))
    assert [size.nodes for size in measured_sizes(curve)] == [3, 4]
    proposal = propose(RULE, Policy(goodput=RULE), curve, seen(4, high=12), Memory())
    assert (proposal.nodes, proposal.is_probe) == (8, True)

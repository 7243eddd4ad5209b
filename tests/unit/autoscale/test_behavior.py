"""Stabilization and rates: the published cases of the HPA, and what must hold for all of them.

The numbers are those of the named tests in kubernetes/kubernetes,
pkg/controller/podautoscaler/horizontal_test.go. Their limits (minReplicas, maxReplicas) are applied
by the test where a case has them, as the HPA does after its rates.
"""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.rules.behavior import (
    rates_reach_s,
    stabilization,
    stabilized,
    windows_reach_s,
    with_proposed,
)
from elasticd.records.autoscale.memory import Memory, Proposed, Resized
from elasticd.records.autoscale.policy import (
    DOWN,
    UP,
    Behavior,
    Rate,
    RateUnit,
    Select,
    TargetRule,
)
from elasticd.records.ids import Generation

NOW_S = 10_000.0


def seen(wanted: int, *, now_s: float = NOW_S) -> Observation:
    return Observation(
        job="job",
        uid="u",
        now_s=now_s,
        unix_s=1.7e9,
        min_nodes=1,
        max_nodes=10_000,
        nodes=wanted,
        wanted=wanted,
        is_running=True,
        is_in_process=True,
        generation=Generation(3),
        available=wanted,
    )


def proposals(*minutes: tuple[int, float]) -> Memory:
    return Memory(
        proposed=tuple(Proposed(at_s=NOW_S - 60 * ago, nodes=nodes) for nodes, ago in minutes)
    )


def resized(changes: list[int], over_s: float, *, sign: int) -> Memory:
    """The published tests spread their events evenly: each in the middle of its part."""
    part_s = over_s / len(changes) if changes else 0.0
    return Memory(
        resized=tuple(
            Resized(at_s=NOW_S - over_s + part_s * (at + 0.5), delta=sign * change)
            for at, change in enumerate(changes)
        )
    )


def rates(
    nodes: float = 0, nodes_s: float = 60, percent: float = 0, percent_s: float = 60
) -> tuple[Rate, ...]:
    by_nodes = Rate(amount=nodes, unit=RateUnit.NODES, period_s=nodes_s)
    by_percent = Rate(amount=percent, unit=RateUnit.PERCENT, period_s=percent_s)
    return ((by_nodes,) if nodes else ()) + ((by_percent,) if percent else ())


def rule(*, up: Behavior | None = None, down: Behavior | None = None) -> TargetRule:
    return TargetRule(metrics=(), up=UP if up is None else up, down=DOWN if down is None else down)


@pytest.mark.parametrize(
    ("proposed", "wanted", "nodes", "up_s", "down_s", "expected"),
    [
        pytest.param((), 100, 5, 0, 0, 5, id="empty recommendations for scaling down"),
        pytest.param(((4, 2), (5, 1)), 100, 3, 0, 180, 5, id="simple scale down stabilization"),
        pytest.param(((4, 2), (5, 1)), 1, 7, 300, 0, 4, id="simple scale up stabilization"),
        pytest.param(((1, 2), (2, 1)), 100, 3, 300, 0, 3, id="no scale down stabilization"),
        pytest.param(((4, 2), (5, 1)), 1, 3, 0, 300, 3, id="no scale up stabilization"),
        pytest.param(((10, 10), (9, 9)), 100, 3, 0, 0, 3, id="reuse element, down"),
        pytest.param(((10, 10), (9, 9)), 1, 100, 0, 0, 100, id="reuse element, up"),
        pytest.param(
            ((10, 10), (4, 1), (5, 2), (9, 9)), 100, 3, 0, 180, 5, id="obsolete element, down"
        ),
        pytest.param(
            ((10, 100), (6, 1), (5, 2), (9, 3)), 1, 100, 300, 0, 5, id="obsolete element, up"
        ),
    ],
)
def test_stabilization_as_published(
    proposed: tuple[tuple[int, float], ...],
    wanted: int,
    nodes: int,
    up_s: float,
    down_s: float,
    expected: int,
) -> None:
    """TestNormalizeDesiredReplicasWithBehavior; there are no rates in it."""
    both = rule(up=Behavior(stabilization_s=up_s), down=Behavior(stabilization_s=down_s))
    assert stabilized(both, seen(wanted), proposals(*proposed), nodes) == expected


@pytest.mark.parametrize(
    ("proposed", "expected"),
    [
        pytest.param((), 5, id="empty log"),
        pytest.param(((4, 2), (5, 1)), 5, id="stabilize"),
        pytest.param(((1, 2), (2, 1)), 3, id="no stabilize"),
        pytest.param(((10, 10), (9, 9)), 3, id="no stabilize - old recommendations"),
        pytest.param(((10, 10), (4, 1), (5, 2), (9, 9)), 5, id="stabilize - old recommendations"),
    ],
)
def test_stabilization_by_default_as_published(
    proposed: tuple[tuple[int, float], ...], expected: int
) -> None:
    """TestNormalizeDesiredReplicas: five minutes, on the way down alone."""
    asked = 3 if proposed else 5
    assert stabilized(rule(), seen(100), proposals(*proposed), asked) == expected


FREE = (1, 1000)
PUBLISHED_RATES = [
    # case, events, up or down, limits, rates, now, asked for, expected
    ("prenormalized desired replicas within range", [], 1, (3, 8), None, 5, 7, 7),
    ("prenormalized desired replicas < minReplicas", [], -1, (2, 8), None, 3, 1, 2),
    ("prenormalized desired within range when minReplicas is 0", [], -1, (0, 10), None, 1, 0, 0),
    ("maxReplicas is the limit because it is < scaleUpLimit", [], 1, (1, 10), None, 20, 1000, 10),
    ("desired is more than the maximum", [], 1, (100, 150), None, 100, 1000, 150),
    ("scaleUpLimit < maxReplicas", [], 1, (1, 2000), rates(percent=1), 3, 1000, 4),
    ("scaleDownLimit > minReplicas", [], -1, (3, 2000), rates(20), 1000, 3, 980),
    ("scaleUp with default behavior", [], 1, FREE, None, 10, 50, 20),
    ("scaleUp, pods larger than percent", [], 1, FREE, rates(100, percent=100), 10, 500, 110),
    ("scaleUp, percent larger than pods", [], 1, FREE, rates(2, percent=100), 10, 500, 20),
    ("scaleUp, large pod policy", [], 1, FREE, rates(100), 10, 50, 50),
    ("scaleUp, large percent policy", [], 1, FREE, rates(10000), 10, 50, 50),
    ("scaleUp with pod policy limitation", [], 1, FREE, rates(30), 10, 50, 40),
    ("scaleUp with percent policy limitation", [], 1, FREE, rates(percent=200), 10, 50, 30),
    ("scaleDown, percent larger than pods", [], -1, FREE, rates(20, percent=1), 100, 2, 80),
    ("scaleDown, pods larger than percent", [], -1, FREE, rates(2, percent=1), 100, 2, 98),
    ("scaleDown, MinReplicas=nil, large pod policy", [], -1, FREE, rates(100), 10, 0, 1),
    ("scaleDown, MinReplicas, large percent", [], -1, (5, 1000), rates(percent=100), 10, 2, 5),
    ("scaleDown with pod policy limitation", [], -1, FREE, rates(5), 10, 2, 5),
    ("scaleDown with percent policy limitation", [], -1, FREE, rates(percent=50), 10, 5, 5),
    ("scaleUp, max, pods and events", [1, 5, 9], 1, (1, 200), rates(300), 100, 500, 200),
    ("scaleUp, max, percent", [1, 5, 9], 1, (1, 200), rates(percent=10000), 100, 500, 200),
    ("scaleUp, a lot of recent events", [1, 5, 9], 1, FREE, rates(5, 120), 100, 500, 100),
    ("scaleUp, pods and events", [1, 5, 9], 1, FREE, rates(150, 120), 100, 500, 235),
    ("scaleUp, percent and events", [1, 5, 9], 1, FREE, rates(0, 0, 200, 120), 100, 500, 255),
    ("scaleDown, default policy, events", [1, 5, 9], -1, FREE, None, 10, 5, 5),
    ("scaleDown, nil, pods, events", [1, 5, 9], -1, FREE, rates(115, 120), 100, 0, 1),
    ("scaleDown, min, pods, events", [1, 5, 9], -1, (5, 1000), rates(130, 120), 100, 0, 5),
    ("scaleDown, min, percent", [1, 5, 9], -1, (5, 1000), rates(0, 0, 100, 120), 100, 2, 5),
    ("scaleDown, pods and events", [1, 5, 9], -1, FREE, rates(5, 120), 100, 2, 100),
    ("scaleDown, percent and events", [2, 4, 6], -1, FREE, rates(0, 0, 50, 120), 100, 0, 56),
    ("scaleDown, events prevent", [10, 10, 10], -1, FREE, rates(0, 0, 10, 120), 100, 0, 100),
    ("scaleDown, events still allow", [10, 10, 10], -1, FREE, rates(0, 0, 1000, 120), 10, 5, 5),
    ("'outdated', one, up", [8, 12, 9, 11], 1, FREE, rates(1000), 100, 200, 200),
    ("not 'outdated', two, up", [8, 12, 9, 11], 1, FREE, rates(1000, 120, 100), 100, 200, 200),
    ("'outdated', two, up", [8, 12, 9, 11], 1, FREE, rates(1000, 30, 100), 100, 200, 200),
    ("'outdated', one, down", [8, 12, 9, 11], -1, FREE, rates(1000), 100, 5, 5),
    ("not 'outdated', two, down", [8, 12, 9, 11], -1, FREE, rates(1000, 120, 100), 100, 5, 5),
    ("'outdated', two, down", [8, 12, 9, 11], -1, FREE, rates(1000, 30, 100), 100, 5, 5),
]


@pytest.mark.parametrize(
    ("events", "sign", "limits", "limited_by", "wanted", "nodes", "expected"),
    [pytest.param(*case[1:], id=f"TestScalingWithRules/{case[0]}") for case in PUBLISHED_RATES],
)
def test_rates_as_published(
    events: list[int],
    sign: int,
    limits: tuple[int, int],
    limited_by: tuple[Rate, ...] | None,
    wanted: int,
    nodes: int,
    expected: int,
) -> None:
    by_default = UP if sign > 0 else DOWN
    own = Behavior(rates=by_default.rates if limited_by is None else limited_by)
    both = rule(up=own) if sign > 0 else rule(down=own)
    got = stabilized(both, seen(wanted), resized(events, 120.0, sign=sign), nodes)
    assert min(max(got, limits[0]), limits[1]) == expected


TWO = (*rates(2), *rates(percent=50))


@pytest.mark.parametrize(
    ("select", "wanted", "nodes", "expected"),
    [
        pytest.param(Select.MIN, 1, 10, 2, id="TestCalculateScaleUpLimitWithScalingRules"),
        pytest.param(Select.MIN, 5, 0, 3, id="TestCalculateScaleDownLimitWithBehaviors"),
        pytest.param(Select.MAX, 1, 10, 3, id="up by the most"),
        pytest.param(Select.MAX, 5, 0, 2, id="down by the most"),
        pytest.param(Select.DISABLED, 5, 10, 5, id="up is forbidden"),
        pytest.param(Select.DISABLED, 5, 1, 5, id="down is forbidden"),
    ],
)
def test_of_two_rates_one_is_selected(
    select: Select, wanted: int, nodes: int, expected: int
) -> None:
    own = Behavior(select=select, rates=TWO)
    assert stabilized(rule(up=own, down=own), seen(wanted), Memory(), nodes) == expected


def test_ten_percent_of_ten_nodes_is_one_node() -> None:
    """10 x 1.1 is 11.000000000000002 in binary."""
    own = Behavior(rates=rates(percent=10))
    assert stabilized(rule(up=own, down=own), seen(10), Memory(), 100) == 11
    assert stabilized(rule(up=own, down=own), seen(10), Memory(), 1) == 9


def test_a_change_up_makes_room_for_one_down_within_the_same_period() -> None:
    """Both lists count: the period began with n - added + removed."""
    own = rule(down=Behavior(rates=rates(2)))
    memory = Memory(resized=(Resized(at_s=NOW_S - 30, delta=3), Resized(at_s=NOW_S - 20, delta=-1)))
    assert stabilized(own, seen(7), memory, 1) == 3


def test_what_held_a_proposal_back_is_said() -> None:
    held = stabilization(rule(), seen(6), proposals((6, 2)), 3)
    assert held.nodes == 6
    assert held.why == (
        "It asks for 3 nodes, and as many as 6 were asked for within the last 300 s."
    )
    assert stabilization(rule(), seen(3), Memory(), 100).why == (
        "It asks for 100 nodes, and the rates let it go to 7 now."
    )
    forbidden = rule(down=Behavior(select=Select.DISABLED))
    assert stabilization(forbidden, seen(3), Memory(), 1).why == (
        "It asks for 1 node, and no change in that direction is allowed."
    )
    assert stabilization(rule(), seen(3), Memory(), 4).why == ""


def test_a_job_that_has_just_begun_is_not_made_smaller_before_one_window_is_over() -> None:
    memory = with_proposed(rule(), seen(8), Memory(), 2)
    assert stabilized(rule(), seen(8), memory, 2) == 8
    later = seen(8, now_s=NOW_S + 299.0)
    memory = with_proposed(rule(), later, memory, 2)
    assert stabilized(rule(), later, memory, 2) == 8
    over = seen(8, now_s=NOW_S + 300.0)
    assert stabilized(rule(), over, with_proposed(rule(), over, memory, 2), 2) == 2


def test_the_reach_of_a_rule_is_that_of_its_longest_window_and_period() -> None:
    own = rule(up=Behavior(stabilization_s=20.0, rates=rates(1, 90.0)), down=Behavior())
    assert (windows_reach_s(own), rates_reach_s(own)) == (20.0, 90.0)
    assert rates_reach_s(rule(up=Behavior(), down=Behavior())) == 0.0


sizes = st.integers(1, 60)
behaviors = st.builds(
    Behavior,
    stabilization_s=st.sampled_from([0.0, 60.0, 300.0]),
    select=st.sampled_from(Select),
    rates=st.lists(
        st.builds(
            Rate,
            amount=st.integers(1, 200).map(float),
            unit=st.sampled_from(RateUnit),
            period_s=st.sampled_from([15.0, 60.0, 600.0]),
        ),
        max_size=3,
    ).map(tuple),
)
histories = st.lists(st.tuples(st.floats(0.0, 400.0), sizes), max_size=12)
changes = st.lists(st.tuples(st.floats(0.0, 700.0), st.integers(-9, 9)), max_size=6)


@given(
    up=behaviors, down=behaviors, past=histories, made=changes, wanted=sizes, low=sizes, high=sizes
)
def test_it_goes_no_further_than_asked_for_never_the_other_way_and_is_monotone(
    up: Behavior,
    down: Behavior,
    past: list[tuple[float, int]],
    made: list[tuple[float, int]],
    wanted: int,
    low: int,
    high: int,
) -> None:
    both = rule(up=up, down=down)
    memory = Memory(
        proposed=tuple(Proposed(at_s=NOW_S - ago_s, nodes=nodes) for ago_s, nodes in past),
        resized=tuple(Resized(at_s=NOW_S - ago_s, delta=delta) for ago_s, delta in made),
    )
    low, high = sorted((low, high))
    got_low, got_high = (stabilized(both, seen(wanted), memory, each) for each in (low, high))
    assert got_low <= got_high
    for nodes, got in ((low, got_low), (high, got_high)):
        assert min(wanted, nodes, *(each for _, each in past)) <= got
        assert got <= max(wanted, nodes, *(each for _, each in past))
    if all(low >= wanted for low in (low, *(each for _, each in past))):
        assert wanted <= got_low <= low


@given(up=behaviors, down=behaviors, asked=st.lists(sizes, min_size=1, max_size=40), wanted=sizes)
def test_what_is_forgotten_would_have_changed_nothing(
    up: Behavior, down: Behavior, asked: list[int], wanted: int
) -> None:
    both = rule(up=up, down=down)
    kept = Memory()
    whole: tuple[Proposed, ...] = (Proposed(at_s=NOW_S, nodes=wanted),)
    for at, nodes in enumerate(asked):
        now = seen(wanted, now_s=NOW_S + 15.0 * at)
        kept = with_proposed(both, now, kept, nodes)
        whole = (*whole, Proposed(at_s=now.now_s, nodes=nodes))
        everything = dataclasses.replace(kept, proposed=whole)
        for each in (1, nodes, 60):
            assert stabilized(both, now, kept, each) == stabilized(both, now, everything, each)
    assert len(kept.proposed) <= 2 * len(set(asked)) + 2


@pytest.mark.parametrize("percent", [1e308, 1.7e308])
def test_percentage_beyond_all_sizes_is_no_limit(percent: float) -> None:
    """Whoever writes it wants none; its product with the nodes is no float any more."""
    behavior = Behavior(rates=(Rate(amount=percent, unit=RateUnit.PERCENT, period_s=15.0),))
    rule = TargetRule(metrics=(), up=behavior, down=behavior)
    assert stabilized(rule, seen(20), Memory(), 100) == 100
    assert stabilized(rule, seen(20), Memory(), 1) == 1

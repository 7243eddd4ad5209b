"""A job that has turned once turns again only where that is worth it."""

from dataclasses import replace

from elasticd.autoscale.curve.size import turned
from elasticd.autoscale.rules.goodput import propose
from elasticd.records.autoscale.curve import Curve, SizeMeasured
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import GoodputRule, Policy
from tests.unit.autoscale.curve.curve_scene import measured
from tests.unit.autoscale.rules.rule_scene import seen

RULE = GoodputRule()


def _worth_of_four(worth: float) -> Curve:
    """Four nodes and eight were measured often and alike, and four are worth so much more."""
    sizes = (
        SizeMeasured(nodes=nodes, step_s=step_s, steps=1e4, spread_s=1e-9, windows=10**6)
        for nodes, step_s in ((4, 1.0), (8, worth / 2**0.5))
    )
    # No other size is left to look at.
    return Curve(sizes=tuple(sizes), a=0.5, b=2.0, refused=(1, 2, 3, 5, 6, 7))


def _wish(curve: Curve, nodes: int) -> int | None:
    return propose(RULE, Policy(goodput=RULE), curve, seen(nodes, high=8), Memory()).nodes


def test_changes_of_direction_are_counted_from_the_first_change_on() -> None:
    curve = turned(Curve(), 4, 8)
    assert (curve.way, curve.turns) == (1, 0)
    curve = turned(turned(curve, 8, 8), 8, 12)
    assert (curve.way, curve.turns) == (1, 0)
    curve = turned(turned(curve, 12, 6), 6, 5)
    assert (curve.way, curve.turns) == (-1, 1)
    assert turned(curve, 5, 6).turns == 2


def test_second_turn_to_fewer_nodes_needs_more_than_the_first() -> None:
    """What is a little more worth than eight nodes is no reason to turn once more."""
    little, much = _worth_of_four(1.049), _worth_of_four(1.2)
    assert _wish(replace(little, way=-1, turns=1), 8) == _wish(little, 8) == 4
    assert _wish(replace(little, way=1, turns=1), 8) == 8
    assert _wish(replace(much, way=1, turns=1), 8) == 4


def test_turn_to_more_nodes_that_were_measured_needs_no_more() -> None:
    """They are worth 4 % more, which is 47 % more steps."""
    curve = measured({1: 1.0, 2: 0.68}, windows=9)
    assert _wish(replace(curve, way=-1, turns=1), 1) == 2


def test_turn_to_more_nodes_that_nobody_has_measured_needs_more_steps() -> None:
    """A third node brings a quarter more steps; a fortieth is worth no second turn."""
    few = measured({n: 0.1 + 1.0 / n for n in (1, 2)}, windows=9)
    assert _wish(replace(few, way=-1, turns=1), 2) == _wish(few, 2) != 2
    wide = measured({n: 0.01 + 1.0 / n for n in (5, 10, 20, 40)}, windows=9)
    policy = Policy(goodput=RULE)
    turned_down = replace(wide, way=-1, turns=1)
    assert propose(RULE, policy, wide, seen(40, high=41), Memory()).nodes == 41
    assert propose(RULE, policy, turned_down, seen(40, high=41), Memory()).nodes == 40

"""Which sizes a rule looks at: those that are allowed, and of a great many only some."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.autoscale.curve.cost import with_change_cost
from elasticd.autoscale.rules.remaining_run import remaining
from elasticd.autoscale.rules.size_range import sizes_between
from elasticd.records.autoscale.policy import Policy
from tests.unit.autoscale.curve.curve_scene import measured
from tests.unit.autoscale.rules.rule_scene import seen


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 10**12))
def test_both_ends_and_each_small_size_are_looked_at_and_never_too_many(
    low: int, more: int
) -> None:
    """What lies between two of them is at most 2 % away."""
    sizes = sizes_between(low, low + more)
    assert (sizes[0], sizes[-1]) == (low, low + more)
    assert sizes[:500] == tuple(range(low, low + min(499, more) + 1))
    assert all(0 < b - a <= 1 + 0.02 * a for a, b in pairwise(sizes))
    assert len(sizes) <= 2000


def test_a_max_that_means_all_there_are_costs_no_more_than_a_large_one() -> None:
    """One job of that kind would keep all others waiting, and every leader after this one."""
    curve = with_change_cost(measured({n: 1.0 / n for n in (1, 2, 4, 1009)}, windows=2), [0.0])
    found = remaining(10**6, Policy(), curve, seen(4, high=10**9))
    assert len(found) <= 2000
    assert 1009 not in sizes_between(1, 10**9) and 1009 in {each.nodes for each in found}

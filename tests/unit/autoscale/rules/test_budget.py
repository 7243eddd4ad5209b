"""The budget rule: the largest size that is paid for to the end."""

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.autoscale.curve.cost import with_change_cost
from elasticd.autoscale.curve.size import refused
from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.budget import propose
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import BudgetRule, Policy
from tests.unit.autoscale.curve.curve_scene import curve_of, measured
from tests.unit.autoscale.rules.rule_scene import seen

CURVE = with_change_cost(curve_of(lambda n: 3.6 * (0.5 + 0.5 / n), 1, 2, 4, 8), [0.0])
"""1,000 steps take 1 node-hour on 1 node, 1.5 on 2, 2.5 on 4, 4.5 on 8."""


def _propose(
    curve: Curve,
    nodes: int,
    *,
    hours: float = 0.0,
    money: float = 0.0,
    price: QueryReading | None = None,
    used: float = 0.0,
    low: int = 1,
    high: int = 8,
) -> Proposal:
    rule = BudgetRule(steps=2000, node_hours=hours, cost=money, price_query="p")
    policy = Policy(budget=rule, min_nodes=low, max_nodes=high)
    readings = {"price": price} if price is not None else {}
    job = seen(nodes, high=64, used_node_hours=used, readings=readings)
    return propose(rule, policy, curve, job, Memory())


def test_it_is_the_largest_size_whose_cost_stays_within() -> None:
    proposal = _propose(CURVE, 8, hours=10.0, used=7.4)
    assert proposal.nodes == 4
    assert "4 nodes need 2.5 node-hours for the 1000 steps that are left" in proposal.why
    assert "within the 2.6 node-hours that are left of 10 node-hours" in proposal.why


def test_a_job_within_its_budget_may_be_larger() -> None:
    assert _propose(CURVE, 1, hours=100.0).nodes == 8


def test_it_does_not_grow_on_the_edge() -> None:
    assert _propose(CURVE, 2, hours=2.52).nodes == 3
    assert _propose(CURVE, 4, hours=2.52).nodes == 4


def test_where_even_min_is_too_dear_that_is_said() -> None:
    proposal = _propose(CURVE, 8, hours=10.0, used=9.5, low=2)
    assert proposal.nodes == 2
    assert "Even 2 nodes, the least that is allowed, need 1.5 node-hours" in proposal.why
    assert "1 node-hours more than is left of 10 node-hours" in proposal.why


def test_money_goes_by_the_price() -> None:
    proposal = _propose(CURVE, 8, money=20.0, price=QueryReading(value=2.0), used=7.4)
    assert proposal.nodes == 4
    assert "5 in money" in proposal.why


def test_a_missing_price_holds_and_never_shrinks() -> None:
    proposal = _propose(
        CURVE,
        8,
        money=1.0,
        price=QueryReading(value=None, why=HoldReason.STALE, detail="10 min old"),
    )
    assert (proposal.nodes, proposal.held, proposal.may_shrink) == (None, HoldReason.STALE, False)
    assert "10 min old" in proposal.why
    assert _propose(CURVE, 8, money=1.0).held == HoldReason.EMPTY


def test_what_costs_nothing_is_allowed() -> None:
    assert _propose(CURVE, 1, money=1.0, price=QueryReading(value=0.0)).nodes == 8


def test_a_size_that_was_taken_back_is_passed_over() -> None:
    assert _propose(refused(CURVE, 4), 8, hours=2.6).nodes == 3


def test_without_steps_or_a_measurement_it_is_held() -> None:
    rule = BudgetRule(steps=2000, node_hours=1.0)
    assert propose(rule, Policy(), CURVE, seen(2, step=0), Memory()).held == HoldReason.NO_STEPS
    assert propose(rule, Policy(), Curve(), seen(2), Memory()).held == HoldReason.NO_WINDOW
    done = propose(rule, Policy(), CURVE, seen(2, step=2000), Memory())
    assert (done.nodes, done.held) == (None, "")


@given(
    st.dictionaries(st.integers(1, 24), st.floats(0.01, 10.0), min_size=1, max_size=6),
    st.floats(0.001, 100.0),
    st.floats(0.0, 100.0),
    st.integers(1, 24),
    st.integers(1, 24),
)
@settings(max_examples=60, deadline=None)
def test_it_stays_within_the_limits_and_the_budget(
    sizes: dict[int, float], hours: float, used: float, one: int, other: int
) -> None:
    low, high = sorted((one, other))
    curve = with_change_cost(measured(sizes, windows=2), [0.0])
    proposal = _propose(curve, min(sizes), hours=hours, used=used, low=low, high=high)
    assert proposal.nodes is not None
    assert low <= proposal.nodes <= high
    if proposal.nodes in sizes and "Even" not in proposal.why:
        needed = proposal.nodes * 1000 * sizes[proposal.nodes] / 3600
        assert needed <= (hours - used) * (1 + 1e-9)


@given(st.floats(-0.02, 0.02), st.floats(-0.02, 0.02), st.floats(1.0, 5.0))
def test_noise_of_a_measurement_does_not_turn_it(first: float, second: float, hours: float) -> None:
    """What shrank on one measurement does not grow to where it was on the next one."""

    def at(noise: float) -> Curve:
        sizes = {n: 3.6 * (0.5 + 0.5 / n) * (1 + noise / 2) for n in range(1, 9)}
        return with_change_cost(measured(sizes, windows=2), [0.0])

    shrunk = _propose(at(first), 8, hours=hours).nodes
    assert shrunk is not None
    again = _propose(at(second), shrunk, hours=hours).nodes
    assert again is not None
    if shrunk < 8:
        assert again < 8


def test_price_next_to_nothing_allows_any_size_and_is_said() -> None:
    """So many node-hours are no number, and the sentence has them all the same."""
    proposal = _propose(CURVE, 1, money=100.0, price=QueryReading(value=5e-324))
    assert proposal.nodes == 8 and "inf" in proposal.why

"""Whatever a job has measured, the rules that go by its curve have a word that can be followed."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from elasticd.autoscale.curve.cost import with_change_cost
from elasticd.autoscale.curve.estimate import measured_sizes
from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import refused, with_windows
from elasticd.autoscale.rules import budget, deadline, goodput
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import BudgetRule, DeadlineRule, GoodputRule, Policy
from elasticd.records.codec import decode, encode
from tests.unit.autoscale.curve.curve_scene import window
from tests.unit.autoscale.rules.rule_scene import seen

WINDOW = st.tuples(
    st.integers(1, 40),
    st.floats(1e-6, 1e6),
    st.integers(1, 10**6),
    st.integers(1, 6),
)
"""Nodes, seconds of a step, steps, and how often in a row."""


@given(
    st.lists(WINDOW, min_size=1, max_size=10),
    st.lists(st.integers(1, 40), max_size=4),
    st.floats(0.0, 1e4),
    st.floats(0.0, 1.0),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
@example([(8, 1034.0, 1, 1), (38, 717.0, 1, 1)], [], 0.0, 0.0, (1, 1))  # Half of 8 is above.
@settings(max_examples=100, deadline=None)
def test_every_proposal_is_a_size_that_is_allowed_and_was_not_taken_back(
    found: list[tuple[int, float, int, int]],
    taken_back: list[int],
    cost_s: float,
    share: float,
    limits: tuple[int, int],
) -> None:
    curve = Curve()
    for nodes, step_s, steps, times in found:
        curve = fitted(with_windows(curve, [window(nodes, step_s, steps=steps)] * times))
    for nodes in taken_back:
        curve = refused(curve, nodes)
    curve = decode(Curve, encode(with_change_cost(curve, [cost_s])))
    low, high = min(limits), max(limits)
    rule = GoodputRule(least_share=share)
    last = DeadlineRule(steps=10_000, at_unix_s=1e9 + 3600.0)
    paid = BudgetRule(steps=10_000, node_hours=10.0)
    policy = Policy(goodput=rule, min_nodes=low, max_nodes=high)
    for size in measured_sizes(curve):
        job = seen(size.nodes, high=40)
        for proposal in (
            goodput.propose(rule, policy, curve, job, Memory()),
            deadline.propose(last, policy, curve, job, Memory()),
            budget.propose(paid, policy, curve, job, Memory()),
        ):
            assert proposal.nodes is not None and low <= proposal.nodes <= high
            assert proposal.why.endswith(".") and "nan" not in proposal.why
            if proposal.nodes not in (size.nodes, low, high):
                assert proposal.nodes not in curve.refused

"""Decisions that promise no throughput are worth it where what they were made for came true."""

from dataclasses import replace

import pytest

from elasticd.autoscale.decide import decide
from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.outcome.benefit import benefit
from elasticd.autoscale.outcome.verdict import verdict
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.policy import (
    Behavior,
    BudgetRule,
    IdleRule,
    MetricKind,
    Policy,
    TargetMetric,
    TargetRule,
)
from elasticd.records.ids import Generation
from tests.unit.autoscale.outcome.test_verdict import DECISION, MEMORY, POLICY, SEEN, window

QUEUE = TargetMetric(name="queue", query="q", target=10.0, kind=MetricKind.LOAD)
SHARE = replace(QUEUE, is_per_node=True)
SPEED = TargetMetric(name="speed", query="s", target=10.0, kind=MetricKind.SUPPLY)
NO_PROMISE = replace(DECISION, promised_steps_per_s=0.0)
GREW = replace(NO_PROMISE, rule=Rule.TARGET, inputs={"metric queue": 60.0})
"""From 4 nodes to 8."""
SHRANK = replace(NO_PROMISE, rule=Rule.TARGET, from_nodes=16)
CHEAPER = replace(NO_PROMISE, rule=Rule.BUDGET, from_nodes=16, was_steps_per_s=1.2)
WAITS = replace(NO_PROMISE, rule=Rule.IDLE, from_nodes=16)
RETURNS = replace(NO_PROMISE, rule=Rule.IDLE)


def with_target(*metrics: TargetMetric, tolerance: float | None = None) -> Policy:
    target = TargetRule(metrics=metrics, up=Behavior(tolerance=tolerance))
    return replace(POLICY, goodput=None, target=target)


def readings(**values: float | None) -> dict[str, QueryReading]:
    return {name: QueryReading(value=value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("metric", "now", "is_worth"),
    [(QUEUE, 54.0, True), (QUEUE, 56.0, False), (SHARE, 57.5, True), (SHARE, 58.5, False)],
)
def test_load_must_have_come_down_by_a_tenth_of_what_was_too_much(
    metric: TargetMetric, now: float, is_worth: bool
) -> None:
    """Of 60 there were 50 too many; 20 where each of four nodes may have 10."""
    seen = replace(SEEN, readings=readings(queue=now))
    found = benefit(with_target(metric), GREW, seen, 1.0)
    assert found is not None and found[0] is is_worth
    assert f"queue was 60, and is {now:g} on 8 nodes" in found[1]


@pytest.mark.parametrize(
    ("queue", "speed", "is_worth"),
    [(10.9, 9.2, True), (11.1, 9.2, False), (10.9, 9.0, False), (0.0, 50.0, True)],
)
def test_fewer_nodes_are_worth_it_while_all_targets_are_met(
    queue: float, speed: float, is_worth: bool
) -> None:
    """Within the tolerance of a tenth, in both directions."""
    seen = replace(SEEN, readings=readings(queue=queue, speed=speed))
    found = benefit(with_target(QUEUE, SPEED), SHRANK, seen, 1.0)
    assert found is not None and found[0] is is_worth


def test_tolerance_of_growth_counts_where_it_has_one() -> None:
    """It says from where on the rule would ask for more again."""
    seen = replace(SEEN, readings=readings(queue=12.0))
    found = benefit(with_target(QUEUE, tolerance=0.3), SHRANK, seen, 1.0)
    assert found is not None and found[0]


@pytest.mark.parametrize("decision", [GREW, SHRANK])
def test_metric_that_is_missing_leaves_a_decision_of_a_target_unknown(
    decision: Decision,
) -> None:
    seen = replace(SEEN, readings=readings(queue=None))
    assert benefit(with_target(QUEUE), decision, seen, 1.0) is None


@pytest.mark.parametrize(("rate", "is_worth"), [(0.7, True), (0.5, False)])
def test_budget_is_worth_it_where_a_step_costs_less(rate: float, is_worth: bool) -> None:
    """16 nodes for 1.2 steps/s: 8 cost less per step above 0.6."""
    policy = replace(POLICY, budget=BudgetRule(steps=1000, node_hours=1.0))
    found = benefit(policy, CHEAPER, SEEN, rate)
    assert found is not None and found[0] is is_worth
    assert found[1].startswith("1000 steps took 3.704 node-hours, and take ")
    assert benefit(policy, replace(CHEAPER, was_steps_per_s=0.0), SEEN, rate) is None


@pytest.mark.parametrize(("share", "is_worth"), [(0.1, True), (0.95, False)])
def test_return_of_an_idle_job_is_worth_it_where_there_is_work(
    share: float, is_worth: bool
) -> None:
    policy = replace(POLICY, idle=IdleRule(data_share=0.9))
    found = benefit(policy, RETURNS, replace(SEEN, data_share=share), 1.0)
    assert found is not None and found[0] is is_worth


def test_idle_job_that_still_waits_for_its_data_is_judged_without_a_window() -> None:
    """For two windows of the wall clock: nothing is measured while it waits."""
    policy = replace(POLICY, idle=IdleRule())
    own = Generation(4)
    memory = replace(MEMORY, generation=own, judged_from=own, idle_since_s=500.0)
    memory = replace(memory, generation_since_s=SEEN.now_s - 2 * POLICY.window_s)
    seen = replace(SEEN, data_share=0.97)
    found = verdict(policy, memory, WAITS, seen)
    assert found is not None and found.outcome is DecisionOutcome.KEPT
    assert found.why == "It still waits for its data, for 97 % of its time, on 8 nodes."
    assert verdict(policy, replace(memory, generation_since_s=SEEN.now_s), WAITS, seen) is None
    assert verdict(policy, replace(memory, idle_since_s=None), WAITS, seen) is None


def test_what_is_not_plain_is_said_with_its_numbers_and_never_taken_back() -> None:
    """The queue has grown although nodes came."""
    memory = replace(MEMORY, judged_from=Generation(4), judged_steps=120, judged_s=120.0)
    seen = replace(SEEN, readings=readings(queue=80.0))
    found = verdict(with_target(QUEUE), memory, GREW, seen)
    assert found is not None and found.outcome is DecisionOutcome.UNKNOWN
    assert found.why == "queue was 60, and is 80 on 8 nodes, which may still come down."


def test_throughput_that_was_promised_is_judged_by_it_alone() -> None:
    """A budget's own wish promises none; one that `max_step` cut short may."""
    memory = replace(MEMORY, judged_from=Generation(4), judged_steps=12, judged_s=120.0)
    promised = replace(CHEAPER, promised_steps_per_s=1.1)
    found = verdict(POLICY, memory, promised, SEEN)
    assert found is not None and "It promised 1.1 steps/s" in found.why


def test_dry_run_leaves_an_open_decision_to_those_that_act() -> None:
    """It goes on measuring for them, whatever it writes down itself."""
    curve = decide(POLICY, Curve(uid="u1"), MEMORY, DECISION, SEEN).curve
    seen = replace(SEEN, windows=(window(1.7),))
    dry = decide(replace(POLICY, is_dry_run=True), curve, MEMORY, DECISION, seen)
    assert dry.closed is None and dry.memory.open_decision == DECISION.number
    seen = replace(seen, now_s=SEEN.now_s + 60.0)  # What a dry run writes down cools down as well.
    found = decide(POLICY, dry.curve, dry.memory, DECISION, seen)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.KEPT

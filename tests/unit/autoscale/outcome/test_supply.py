"""NodeCount that a supply asked for, and that bring it nothing, are given back; others are kept."""

from dataclasses import replace

import pytest

from elasticd.autoscale.evaluation_input import QueryReading
from elasticd.autoscale.outcome.supply import supplied
from elasticd.autoscale.policy_file.parser import parsed
from elasticd.autoscale.simulator.run import Autoscaler, simulate
from elasticd.autoscale.simulator.scenario import JobCurve, JobScenario, NodeCount
from elasticd.autoscale.simulator.shape import Shape
from elasticd.autoscale.simulator.trace import Trace
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.policy import MetricKind, TargetMetric, TargetRule
from tests.unit.autoscale.outcome.test_verdict import DECISION, SEEN

FLAT, LINEAR = Shape(a=0.5, b=0.0), Shape(b=2.0)
SPEED = TargetMetric(name="speed", query="speed", target=12.0, kind=MetricKind.SUPPLY)
QUEUE = TargetMetric(name="queue", query="queue", target=10.0, kind=MetricKind.LOAD)
GREW = replace(DECISION, rule=Rule.TARGET, promised_steps_per_s=0.0, inputs={"metric speed": 5.0})
"""From 4 nodes to 8, of which 10 could be hoped for."""


def lived(*curves: JobCurve, supply: float = 6.0) -> Trace:
    text = f"""
    [target]
    [[target.metrics]]
    name = "throughput"
    query = "x"
    supply = {supply}
    """
    scenario = JobScenario(
        name="one",
        curves=curves,
        nodes=(NodeCount(from_s=0.0, available=16),),
        duration_s=7_200.0,
        first_nodes=2,
    )
    return simulate(scenario, Autoscaler(parsed(text, file="x.toml", now_unix_s=0.0)))


def test_throughput_that_no_nodes_raise_takes_none_for_long() -> None:
    """It is tried once: the size is taken back, and not asked for again."""
    trace = lived(JobCurve(from_s=0.0, shape=FLAT))
    grew, back = trace.decisions
    assert (grew.from_nodes, grew.rule, grew.outcome) == (
        2,
        Rule.TARGET,
        DecisionOutcome.TAKEN_BACK,
    )
    assert "throughput was" in grew.outcome_why and "next to nothing" in grew.outcome_why
    assert (back.rule, back.to_nodes, back.outcome) == (Rule.TAKE_BACK, 2, DecisionOutcome.KEPT)
    assert trace.points[-1].nodes == 2


def test_job_that_changes_is_asked_for_more_again() -> None:
    """What brought nothing before may bring something now."""
    slow = Shape(a=0.6, b=0.0)
    steep = Shape(a=0.0, b=3.0)
    trace = lived(JobCurve(from_s=0.0, shape=slow), JobCurve(from_s=3_600.0, shape=steep))
    assert trace.decisions[0].outcome is DecisionOutcome.TAKEN_BACK
    assert trace.points[-1].nodes >= 16


def test_throughput_that_rises_by_less_than_linearly_is_still_followed() -> None:
    """A third of what nodes could bring is what somebody asked for."""
    bends = Shape(a=0.1, b=0.8)
    trace = lived(JobCurve(from_s=0.0, shape=bends), supply=5.5)
    outcomes = {each.outcome for each in trace.decisions}
    assert DecisionOutcome.TAKEN_BACK not in outcomes and DecisionOutcome.KEPT in outcomes
    assert trace.points[-1].rate > 4.9


@pytest.mark.parametrize(
    ("speed", "got", "is_worth"),
    [(5.4, 1.0, False), (5.6, 1.0, True), (5.0, 1.09, False), (5.0, 1.2, True)],
)
def test_supply_or_steps_must_have_risen_by_a_tenth_of_what_was_hoped(
    speed: float, got: float, is_worth: bool
) -> None:
    """From 5 to 10 was hoped, or from 1 step a second to 2."""
    seen = replace(SEEN, readings={"speed": QueryReading(value=speed)})
    found = supplied(TargetRule(metrics=(SPEED,)), GREW, seen, got)
    assert found is not None and found[0] is is_worth


@pytest.mark.parametrize(
    ("decision", "reading"),
    [
        (
            replace(GREW, inputs={"metric speed": 5.0, "metric queue": 30.0}),
            QueryReading(value=5.0),
        ),
        (replace(GREW, inputs={"metric speed": 14.0}), QueryReading(value=5.0)),
        (replace(GREW, to_nodes=2), QueryReading(value=5.0)),
        (GREW, QueryReading(value=None, why="unreachable")),
    ],
)
def test_nothing_is_judged_where_something_else_asked_or_nobody_knows(
    decision: Decision, reading: QueryReading
) -> None:
    """A load asked as well, nobody asked, it shrank, or the metric is away."""
    seen = replace(SEEN, readings={"speed": reading, "queue": QueryReading(value=30.0)})
    assert supplied(TargetRule(metrics=(SPEED, QUEUE)), decision, seen, 1.0) is None

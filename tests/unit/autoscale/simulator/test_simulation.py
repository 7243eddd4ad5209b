"""The shipped rules on drawn curves, with faults: near the oracle, and never harmful."""

from dataclasses import replace
from functools import cache

import pytest

from elasticd.autoscale.simulator.run import EPOCH_S, Autoscaler, simulate
from elasticd.autoscale.simulator.scenario import (
    DataRate,
    FaultKind,
    JobCurve,
    JobScenario,
    NodeCount,
    SimulatedFault,
)
from elasticd.autoscale.simulator.shape import Shape
from elasticd.autoscale.simulator.trace import Trace
from elasticd.records.autoscale.decision import DecisionOutcome
from elasticd.records.autoscale.policy import BudgetRule, IdleRule
from tests.sim.autoscaler.draw import OTHER_FAULTS, scenarios
from tests.sim.autoscaler.oracle import best_size, score
from tests.sim.autoscaler.policy import POLICY
from tests.sim.autoscaler.rivals import SCALERS

SEED, CURVES, HOURS = 7, 24, 2.0
SHARE = 0.5
"""`least_share` of the policy."""
MISSING = (
    FaultKind.EMPTY,
    FaultKind.STALE,
    FaultKind.NOT_A_NUMBER,
    FaultKind.MANY_SERIES,
    FaultKind.NEGATIVE,
    FaultKind.HUGE,
    FaultKind.UNREACHABLE,
    FaultKind.WARNING,
    FaultKind.LOW_AFTER,
    FaultKind.REFUSED,
    FaultKind.SLOW,
    FaultKind.CLOCK_BACK,
)
CLIFF = Shape(b=4.0, cliff_nodes=5, cliff_factor=2.0)


@cache
def drawn() -> tuple[tuple[JobScenario, Trace], ...]:
    """Return the scenarios with what the autoscaler did in them."""
    return tuple(
        (scenario, simulate(scenario, Autoscaler(POLICY)))
        for scenario in scenarios(SEED, CURVES, HOURS * 3600.0)
    )


@cache
def drawn_otherwise() -> tuple[tuple[JobScenario, Trace], ...]:
    """Return the same of the faults that the benchmark does not draw."""
    return tuple(
        (scenario, simulate(scenario, Autoscaler(POLICY)))
        for scenario in scenarios(SEED, CURVES // 2, 3600.0, OTHER_FAULTS)
    )


def one(**more: object) -> JobScenario:
    values: dict[str, object] = {
        "name": "one",
        "curves": (JobCurve(from_s=0.0, shape=CLIFF),),
        "nodes": (NodeCount(from_s=0.0, available=8),),
        "duration_s": 3600.0,
        "max_nodes": 8,
        "first_nodes": 1,
    }
    return JobScenario(**{**values, **more})  # type: ignore[arg-type]


def test_drawn_curves_come_near_the_oracle() -> None:
    """In two hours a third of the time is spent on finding out; the benchmark gives four."""
    shares = sorted(score(scenario, trace, SHARE).goodput_share for scenario, trace in drawn())
    assert shares[0] > 0.8
    assert shares[len(shares) // 2] > 0.95


def test_job_does_not_go_to_and_fro() -> None:
    """After each real change at most a few changes of direction, and mostly one or none."""
    turns = sorted(score(scenario, trace, SHARE).turns for scenario, trace in drawn())
    assert turns[len(turns) // 2] <= 1
    assert turns[-1] <= 5


def test_nothing_shrinks_while_a_metric_is_missing() -> None:
    """Whatever the fault and the curve, in all drawn scenarios."""
    faults = 0
    for scenario, trace in (*drawn(), *drawn_otherwise()):
        for fault in scenario.faults:
            if fault.kind not in MISSING:
                continue
            faults += 1
            for each in trace.decisions:
                is_meanwhile = fault.from_s < each.at_unix_s - EPOCH_S <= fault.until_s
                assert not (is_meanwhile and each.to_nodes < each.from_nodes)
    assert {fault.kind for scenario, _ in drawn_otherwise() for fault in scenario.faults} == set(
        OTHER_FAULTS
    )
    assert faults > 0


def test_two_leaders_write_each_decision_once_and_end_where_one_does() -> None:
    """The lead goes to and fro ten times: each goes by the records, on a clock of its own."""
    spans = tuple(
        SimulatedFault(
            kind=FaultKind.TWO_LEADERS, from_s=200.0 + 300.0 * k, until_s=350.0 + 300.0 * k
        )
        for k in range(5)
    )
    calm = simulate(one(), Autoscaler(POLICY))
    trace = simulate(one(faults=spans), Autoscaler(POLICY))
    assert trace.points[-1].nodes == calm.points[-1].nodes == 5
    numbers = [each.number for each in trace.decisions]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("kind", MISSING)
def test_missing_metrics_hold_the_size_for_as_long(kind: FaultKind) -> None:
    """The queue would have the job small, and nobody knows that it is."""
    scenario = one(
        curves=(JobCurve(from_s=0.0, shape=Shape(b=0.001, a=1.0)),),
        first_nodes=8,
        faults=(SimulatedFault(kind=kind, from_s=0.0, until_s=1800.0),),
    )
    trace = simulate(scenario, Autoscaler(POLICY))
    assert {point.nodes for point in trace.points if point.at_s <= 1800.0} == {8}
    assert trace.points[-1].nodes < 8


@pytest.mark.parametrize("kind", MISSING)
def test_budget_and_idleness_take_no_node_while_metrics_are_missing(kind: FaultKind) -> None:
    """Steps become too dear for the budget, or no data come: both wait for the metrics."""
    away = SimulatedFault(kind=kind, from_s=0.0, until_s=2400.0)
    dearer = (
        JobCurve(from_s=0.0, shape=Shape(b=4.0)),
        JobCurve(from_s=900.0, shape=Shape(b=16.0)),
    )
    no_data = (DataRate(from_s=900.0, steps_per_s=0.02),)
    spent = one(curves=dearer, first_nodes=8, faults=(away,))
    idle = one(curves=dearer[:1], first_nodes=8, faults=(away,), data_rates=no_data)
    for scenario, policy in (
        (spent, replace(POLICY, budget=BudgetRule(steps=3600, node_hours=6.0))),
        (idle, replace(POLICY, idle=IdleRule(after_s=60.0))),
    ):
        trace = simulate(scenario, Autoscaler(policy))
        assert {point.nodes for point in trace.points if point.at_s <= 2400.0} == {8}
        assert trace.points[-1].nodes == 1


@pytest.mark.parametrize("kill_s", [60.0, 75.0, 90.0, 105.0, 120.0, 300.0, 600.0])
def test_killed_leader_changes_nothing_of_where_the_job_ends(kill_s: float) -> None:
    """The next one goes on from the records; it only measures one window again."""
    kills = tuple(
        SimulatedFault(kind=FaultKind.LEADER_KILLED, from_s=kill_s + 400.0 * k, until_s=kill_s)
        for k in range(3)
    )
    calm = simulate(one(), Autoscaler(POLICY))
    trace = simulate(one(faults=kills), Autoscaler(POLICY))
    assert trace.points[-1].nodes == calm.points[-1].nodes == 5
    assert trace.steps > 0.93 * calm.steps


def test_bad_try_is_taken_back_and_the_last_good_size_found() -> None:
    """Behind the cliff eight nodes promise twice as much, and bring next to nothing."""
    trace = simulate(one(), Autoscaler(POLICY))
    taken = [each for each in trace.decisions if each.outcome is DecisionOutcome.TAKEN_BACK]
    assert [(each.from_nodes, each.to_nodes) for each in taken][:1] == [(4, 8)]
    assert trace.points[-1].nodes == best_size(CLIFF, 1, 8, SHARE) == 5
    assert trace.turns == 1


def test_same_seed_is_the_same_trace() -> None:
    """What failed can be looked at again."""
    scenario = scenarios(SEED, 4, 1800.0)[3]
    first, second = (simulate(scenario, Autoscaler(POLICY)) for _ in range(2))
    assert first == second


def test_changing_curve_is_followed() -> None:
    """The job is another one after half an hour, and scales."""
    scenario = one(
        curves=(
            JobCurve(from_s=0.0, shape=Shape(a=1.0, b=0.5)),
            JobCurve(from_s=1800.0, shape=Shape(a=0.01, b=8.0)),
        )
    )
    trace = simulate(scenario, Autoscaler(POLICY))
    before = [point.nodes for point in trace.points if 1500.0 <= point.at_s <= 1800.0]
    assert max(before) <= 3
    assert trace.points[-1].nodes == 8


def test_rivals_live_through_the_same_scenarios() -> None:
    """Each makes steps, and an uninverted throughput makes the job small."""
    scenario = one(duration_s=1800.0, curves=(JobCurve(from_s=0.0, shape=Shape(b=4.0)),))
    scores = {
        name: score(scenario, simulate(scenario, make(scenario)), SHARE)
        for name, make in SCALERS.items()
    }
    assert all(0.0 < each.goodput_share <= 1.001 for each in scores.values())
    assert scores["always MAX"].goodput_share > 0.98
    assert scores["HPA on throughput, uninverted"].goodput_share < 0.5

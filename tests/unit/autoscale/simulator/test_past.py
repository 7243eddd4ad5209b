"""What Prometheus has of a job's life, and what it is taken to have been at another size."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from elasticd.autoscale.policy_file.parser import parsed
from elasticd.autoscale.simulator.past import JobPast, PastMetrics, PastValue, Sizes
from elasticd.autoscale.simulator.replay import EVERY_S, replay, simulated_policy
from elasticd.autoscale.simulator.scenario import DataRate
from elasticd.autoscale.simulator.shape import Shape
from elasticd.autoscale.simulator.trace import Trace
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.policy import Policy
from tests.unit.autoscale.simulator.test_replay import AT_S, HISTORY

TARGET = """
[target]
[[target.metrics]]
name = "speed"
query = "speed"
supply = 2
[[target.metrics]]
name = "queue"
query = "queue"
load = 100
[[target.metrics]]
name = "lag"
query = "lag"
load = 10
per_node = true
"""
LINEAR = Shape(b=1.0)


def policy(text: str) -> Policy:
    return parsed(text, file="x.toml", now_unix_s=AT_S)


def values(value: Callable[[float], float], until_s: float = 3_600.0) -> tuple[PastValue, ...]:
    """A point every fifteen seconds."""
    times = [EVERY_S * number for number in range(1, int(until_s / EVERY_S) + 1)]
    return tuple(PastValue(at_s=at_s, value=value(at_s)) for at_s in times)


def lived(text: str, past: JobPast) -> tuple[Trace, tuple[str, ...]]:
    """Simulate what of the policy can be."""
    possible, notes = simulated_policy(policy(text), past)
    return replay(HISTORY, possible, past), notes


def test_metric_is_one_of_the_size_that_is_simulated() -> None:
    """The job had two nodes then; at four it is twice as fast, and its queue half as long."""
    readings = {name: values(lambda _: 8.0) for name in ("speed", "queue", "lag", "price")}
    past = JobPast(step_s=EVERY_S, readings=readings)
    sizes = Sizes(from_s=(0.0, 600.0), nodes=(2, 4))
    metrics = PastMetrics(past, policy(TARGET), sizes, LINEAR)
    at_four = {name: each.value for name, each in metrics.read(300.0, 4, 0.0).items()}
    assert at_four == {"speed": 16.0, "queue": 4.0, "lag": 8.0, "price": 8.0}
    then = {name: each.value for name, each in metrics.read(900.0, 4, 0.0).items()}
    assert set(then.values()) == {8.0}


def test_time_without_a_number_has_none_in_the_simulation() -> None:
    """Before the first scrape, in a gap, after the end; and where it was no number to go by."""
    known = tuple(each for each in values(lambda _: 1.0) if not 900.0 < each.at_s < 1_200.0)
    past = JobPast(step_s=EVERY_S, readings={"queue": known, "speed": values(lambda _: -1.0)})
    sizes = Sizes(from_s=(0.0,), nodes=(2,))
    metrics = PastMetrics(past, policy(TARGET), sizes, LINEAR)
    for at_s in (0.0, 930.0, 1_190.0, 4_000.0):
        assert metrics.read(at_s, 2, 0.0)["queue"].why == HoldReason.EMPTY
    for at_s in (15.0, 900.0, 1_200.0, 3_607.0):
        assert metrics.read(at_s, 2, 0.0)["queue"].value == 1.0
    assert metrics.read(60.0, 2, 0.0)["speed"].why == HoldReason.NEGATIVE


def test_pauses_and_waits_for_data_are_found() -> None:
    """One pause is one, also over a scrape that is missing; data came as fast on any size."""
    shares = values(lambda at_s: 0.9 if 600.0 <= at_s < 1_200.0 else 0.0)
    past = JobPast(
        step_s=EVERY_S,
        pause_share=tuple(each for each in shares if each.at_s != 900.0),
        data_share=values(lambda at_s: 0.75 if at_s >= 1_800.0 else 0.01),
    )
    assert past.pauses == ((600.0, 1_200.0),)
    rates = past.data_rates(LINEAR, lambda _: 4)
    assert rates == (DataRate(from_s=1_800.0, steps_per_s=1.0),)
    waits = replace(past, data_share=values(lambda at_s: 0.75 if at_s < 60.0 else 0.01))
    assert waits.data_rates(LINEAR, lambda _: 4)[-1].steps_per_s == math.inf


def test_target_is_simulated_on_what_its_query_answered() -> None:
    """More speed than is asked for on eight nodes, and then on four: three would have done."""
    on_eight, on_four = 1.0 / (0.1 + 1.2 / 8 + 0.07), 1.0 / (0.1 + 1.2 / 4 + 0.03)
    speed = values(lambda at_s: on_eight if at_s < 1_800.0 else on_four)
    past = JobPast(step_s=EVERY_S, readings={"speed": speed})
    text = "[target]\n[[target.metrics]]\nname = 'speed'\nquery = 'speed'\nsupply = 1.4\n"
    trace, notes = lived(text, past)
    assert trace.points[-1].nodes == 3 and {each.rule for each in trace.decisions} == {Rule.TARGET}
    assert trace.points[-1].at_s == 3_600.0
    assert any("speed is taken to be as much more as its steps are faster" in n for n in notes)


def test_pause_takes_no_node_in_a_simulation_either() -> None:
    """It makes no steps, and it is not measured."""
    past = JobPast(
        step_s=EVERY_S,
        pause_share=values(lambda at_s: 1.0 if 1_200.0 <= at_s < 2_400.0 else 0.0),
        data_share=values(lambda _: 0.0),
    )
    trace, notes = lived("[idle]\n", past)
    assert trace.decisions == () and trace.points[-1].nodes == 8
    paused = [each for each in trace.points if 1_300.0 < each.at_s < 2_300.0]
    assert {each.rate for each in paused} == {0.0}
    assert any("pauses and waits for data are those of that time" in note for note in notes)


def test_idle_is_simulated_on_the_waits_for_data_that_there_were() -> None:
    """One node while none come, and as many as before after it."""
    past = JobPast(
        step_s=EVERY_S,
        pause_share=values(lambda _: 0.0),
        data_share=values(lambda at_s: 0.97 if 1_200.0 <= at_s < 2_400.0 else 0.0),
    )
    trace, _ = lived("[idle]\n", past)
    assert [(each.rule, each.to_nodes) for each in trace.decisions] == [
        (Rule.IDLE, 1),
        (Rule.IDLE, 8),
    ]


def test_budget_in_money_goes_by_the_price_of_that_time() -> None:
    """When a node becomes ten times as dear, fewer of them are paid for."""
    past = JobPast(
        step_s=EVERY_S, readings={"price": values(lambda at_s: 1.0 if at_s < 900.0 else 10.0)}
    )
    text = "[budget]\nsteps = 20000\ncost = 30\nprice = 'p'\n"
    trace, notes = lived(text, past)
    assert notes == ()
    assert trace.decisions and {each.rule for each in trace.decisions} == {Rule.BUDGET}
    assert trace.points[20].nodes > trace.points[-1].nodes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TARGET, "Prometheus has nothing of speed and queue and lag from the time of this job"),
        ("[idle]\n", "Prometheus has nothing of elasticd_slot_seconds_total"),
        ("[budget]\nsteps = 9\ncost = 1\nprice = 'p'\n", "Prometheus has nothing of price"),
    ],
)
def test_rule_of_which_prometheus_has_nothing_is_left_out(text: str, said: str) -> None:
    """As where it keeps its samples for two weeks, and the job is older."""
    left, notes = simulated_policy(policy(f"[goodput]\n{text}"), JobPast(step_s=EVERY_S))
    assert left.goodput is not None and (left.target, left.idle, left.budget) == (None, None, None)
    assert len(notes) == 1 and said in notes[0]

"""What came of a decision: kept, taken back once, or not known, and never by mixed windows."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.autoscale.decide import Decided, decide
from elasticd.autoscale.evaluation_input import MeasuredWindow, QueryReading
from elasticd.autoscale.outcome.verdict import followed, verdict
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import (
    Behavior,
    GoodputRule,
    MetricKind,
    Policy,
    TargetMetric,
    TargetRule,
)
from elasticd.records.ids import Generation
from tests.unit.autoscale.seen_scene import SEEN as SCENE

POLICY = Policy(goodput=GoodputRule(), cooldown_s=30.0, set_at_unix_s=1.0)
DECISION = Decision(
    number=1,
    uid="u1",
    rule=Rule.GOODPUT,
    from_nodes=4,
    to_nodes=8,
    why="",
    generation=Generation(3),
    was_steps_per_s=1.0,
    promised_steps_per_s=1.8,
)
MEMORY = Memory(uid="u1", decisions=1, open_decision=1, wanted=8, policy_at_unix_s=1.0)
SEEN = replace(SCENE, nodes=8, wanted=8, generation=Generation(4), change_cost_s=(1.0,))
"""The decision has come true."""


def window(rate: float, generation: int = 4, nodes: int = 8) -> MeasuredWindow:
    return MeasuredWindow(
        generation=Generation(generation), nodes=nodes, steps=round(60 * rate), seconds=60.0
    )


def judged(*windows: MeasuredWindow, decision: Decision = DECISION) -> Decided:
    """Return what an evaluation makes of these windows."""
    before = tuple(window(1.0, generation=3, nodes=4) for _ in range(4))
    curve = decide(POLICY, Curve(uid="u1"), MEMORY, decision, replace(SEEN, windows=before)).curve
    return decide(POLICY, curve, MEMORY, decision, replace(SEEN, windows=windows))


def test_decision_is_judged_after_two_windows_and_not_before() -> None:
    """One window is one sample."""
    assert judged(window(1.7)).closed is None
    assert judged(window(1.7)).held == HoldReason.PROBE
    found = judged(window(1.7), window(1.7))
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.KEPT
    assert found.closed.got_steps_per_s == pytest.approx(1.7)


def test_windows_of_another_generation_are_not_mixed_in() -> None:
    """What ran before the change says nothing of the size after it."""
    found = judged(window(1.0, generation=3, nodes=4), window(1.7), window(1.7))
    assert found.closed is not None and found.closed.got_steps_per_s == pytest.approx(1.7)


@pytest.mark.parametrize(
    ("rate", "outcome"), [(1.42, DecisionOutcome.KEPT), (1.38, DecisionOutcome.TAKEN_BACK)]
)
def test_less_than_half_of_the_promise_is_taken_back(rate: float, outcome: DecisionOutcome) -> None:
    """Of 0.8 steps/s more 0.4 are half."""
    found = judged(window(rate), window(rate))
    assert found.closed is not None and found.closed.outcome is outcome


def test_decision_that_broke_its_promise_is_taken_back_and_remembered() -> None:
    """A decision of its own goes back, and the curve refuses the size."""
    found = judged(window(1.0), window(1.0))
    assert found.wanted is not None and 4 <= found.wanted < 8
    assert found.decision is not None and found.decision.rule is Rule.TAKE_BACK
    assert found.decision.number == 2 and found.memory.open_decision == 2
    assert "less than half of its promise" in found.decision.why
    assert 8 in found.curve.refused


def test_taking_back_is_not_taken_back_itself() -> None:
    """Once is enough: the job would go to and fro."""
    back = replace(DECISION, rule=Rule.TAKE_BACK, from_nodes=4, to_nodes=8)
    found = judged(window(0.9), window(0.9), decision=back)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.KEPT


def test_taking_back_is_over_after_one_window() -> None:
    """It is kept whatever was measured, and the job has lost time already."""
    back = replace(DECISION, rule=Rule.TAKE_BACK)
    found = judged(window(0.9), decision=back)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.KEPT


def test_smaller_size_that_costs_more_than_it_said_is_taken_back() -> None:
    """Twice its loss is allowed, and what two windows cannot tell."""
    less = replace(DECISION, promised_steps_per_s=0.9)
    assert _outcome(less, 0.81) is DecisionOutcome.KEPT
    assert _outcome(less, 0.79) is DecisionOutcome.TAKEN_BACK
    assert _outcome(replace(DECISION, promised_steps_per_s=1.0), 0.96) is DecisionOutcome.KEPT


def test_another_generation_before_the_verdict_leaves_it_unknown() -> None:
    """A node was lost: nobody knows what the decision would have brought."""
    first = judged(window(1.7))
    seen = replace(SEEN, generation=Generation(5), now_s=1060.0)
    found = decide(POLICY, first.curve, first.memory, DECISION, seen)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.UNKNOWN
    assert "60 s of 120 s" in found.closed.outcome_why


def test_decision_without_a_promise_is_not_judged_and_says_what_came() -> None:
    """A queue is no throughput."""
    found = judged(window(0.5), window(0.5), decision=replace(DECISION, promised_steps_per_s=0.0))
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.UNKNOWN
    assert "0.5 steps/s were measured, 1 before" in found.closed.outcome_why


def test_probe_is_judged_after_its_own_time() -> None:
    """An unknown size is tried for `probe_s`, which is one window here."""
    found = judged(window(1.7), decision=replace(DECISION, is_probe=True))
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.KEPT


def test_verdict_waits_for_the_cooldown_so_that_it_can_be_acted_upon() -> None:
    """A verdict without its change would be lost."""
    memory = replace(MEMORY, decided_s=990.0)
    bad = (window(1.0), window(1.0))
    waits = decide(POLICY, Curve(uid="u1"), memory, DECISION, replace(SEEN, windows=bad))
    assert waits.closed is None and waits.memory.open_decision == 1
    later = replace(SEEN, now_s=1020.0)
    found = decide(POLICY, waits.curve, waits.memory, DECISION, later)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.TAKEN_BACK


@given(
    rates=st.lists(st.floats(0.05, 20.0), min_size=1, max_size=4),
    generations=st.lists(st.integers(3, 5), min_size=4, max_size=4),
)
@settings(deadline=None)
def test_what_is_judged_is_of_one_generation(rates: list[float], generations: list[int]) -> None:
    """Whatever comes, nothing but that generation's windows counts."""
    seen = replace(
        SEEN,
        windows=tuple(
            window(rate, generation) for rate, generation in zip(rates, generations, strict=False)
        ),
    )
    memory = followed(MEMORY, DECISION, seen)
    own = [each for each in seen.windows if each.generation == SEEN.generation]
    assert memory.judged_s == sum(each.seconds for each in own)
    assert memory.judged_steps == sum(each.steps for each in own)
    found = verdict(POLICY, memory, DECISION, seen)
    assert (found is not None) == (len(own) >= 2)


def _outcome(decision: Decision, rate: float) -> DecisionOutcome:
    memory = replace(
        MEMORY, judged_from=Generation(4), judged_steps=round(12_000 * rate), judged_s=12_000.0
    )
    found = verdict(POLICY, memory, decision, SEEN)
    assert found is not None
    return found.outcome


def test_decision_is_not_taken_back_while_another_rule_asks_for_that_size() -> None:
    """The queue asks for eight nodes, whatever they bring."""
    queue = TargetMetric(name="queue", query="q", target=10.0, kind=MetricKind.LOAD)
    policy = replace(POLICY, target=TargetRule(metrics=(queue,)))
    memory = replace(MEMORY, whole_since_s={"queue": 0.0})
    seen = replace(
        SEEN, windows=(window(1.0), window(1.0)), readings={"queue": QueryReading(value=10.0)}
    )
    found = decide(policy, Curve(uid="u1"), memory, DECISION, seen)
    assert found.wanted is None and found.decision is None
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.UNKNOWN
    assert found.memory.open_decision == 0


def test_verdict_waits_while_a_metric_is_missing() -> None:
    """To take growth back is to shrink, and nothing shrinks on half of its inputs."""
    queue = TargetMetric(name="queue", query="q", target=10.0, kind=MetricKind.LOAD)
    policy = replace(POLICY, target=TargetRule(metrics=(queue,), down=Behavior()))
    missing = {"queue": QueryReading(value=None, why="unreachable")}
    bad = replace(SEEN, windows=(window(1.0), window(1.0)), readings=missing)
    waits = decide(policy, Curve(uid="u1"), MEMORY, DECISION, bad)
    assert (waits.wanted, waits.closed, waits.held) == (None, None, HoldReason.UNREACHABLE)
    assert waits.curve.refused == () and waits.curve.sizes != ()
    back = replace(SEEN, now_s=1200.0, readings={"queue": QueryReading(value=1.0)})
    memory = replace(waits.memory, whole_since_s={"queue": 1000.0})
    found = decide(policy, waits.curve, memory, DECISION, back)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.TAKEN_BACK
    assert found.wanted is not None and found.wanted < 8


def test_smaller_size_that_was_tried_is_kept_where_none_is_worth_more() -> None:
    """More was hoped of it, and five nodes bring too little more."""
    less = replace(
        DECISION,
        from_nodes=5,
        to_nodes=4,
        is_probe=True,
        was_steps_per_s=1.08,
        promised_steps_per_s=1.8,
    )
    before = tuple(window(1.08, generation=3, nodes=5) for _ in range(4))
    seen = replace(SEEN, nodes=4, wanted=4, min_nodes=4)
    curve = decide(POLICY, Curve(uid="u1"), MEMORY, less, replace(seen, windows=before)).curve
    tried = replace(seen, windows=(window(1.0, nodes=4),))
    found = decide(POLICY, curve, MEMORY, less, tried)
    assert found.wanted is None
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.KEPT
    assert "No size that was measured is worth more" in found.closed.outcome_why
    assert found.curve.refused == ()


@pytest.mark.parametrize(
    ("rate", "outcome"), [(1.42, DecisionOutcome.KEPT), (1.38, DecisionOutcome.TAKEN_BACK)]
)
def test_size_that_is_worth_as_much_as_before_is_kept_whatever_it_promised(
    rate: float, outcome: DecisionOutcome
) -> None:
    """Twice the nodes for 1.41 times the steps: that is what `least_share` is ready to pay."""
    found = judged(window(rate), window(rate), decision=replace(DECISION, promised_steps_per_s=2.0))
    assert found.closed is not None and found.closed.outcome is outcome
    is_kept = outcome is DecisionOutcome.KEPT
    assert ("No smaller size is worth more, so it is kept" in found.closed.outcome_why) == is_kept
    assert found.curve.refused == (() if is_kept else (8,))

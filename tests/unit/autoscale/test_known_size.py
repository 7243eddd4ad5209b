"""A size that was measured and does not bring what it brought tells that the job is another one."""

from dataclasses import replace

from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import is_another_job, with_windows
from elasticd.autoscale.decide import Decided, decide
from elasticd.autoscale.evaluation_input import MeasuredWindow
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Candidate, Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import GoodputRule, Policy
from elasticd.records.ids import Generation
from tests.unit.autoscale.curve.curve_scene import measured
from tests.unit.autoscale.seen_scene import SEEN

POLICY = Policy(goodput=GoodputRule(), set_at_unix_s=1.0)
MEMORY = Memory(
    uid="u1", policy_at_unix_s=1.0, decisions=7, open_decision=7, generation=Generation(3)
)
SHRUNK = Decision(
    number=7,
    uid="u1",
    rule=Rule.GOODPUT,
    from_nodes=8,
    to_nodes=4,
    why="",
    generation=Generation(2),
    was_steps_per_s=1.0,
    promised_steps_per_s=1.2,
    candidates=(Candidate(nodes=4, steps_per_s=1.2, is_measured=True),),
)


def _judged(rate: float, decision: Decision = SHRUNK) -> Decided:
    """Come to four nodes, of which 1.2 steps/s are known, and make so many there."""
    curve = replace(measured({4: 1 / 1.2, 8: 1.0}, windows=6), uid="u1")
    window = MeasuredWindow(
        generation=Generation(3), nodes=4, steps=round(120 * rate), seconds=120.0
    )
    return decide(POLICY, curve, MEMORY, decision, replace(SEEN, windows=(window,)))


def test_known_size_that_is_far_from_what_it_was_begins_the_curve_anew() -> None:
    """What it came from is no better known: to go back there would be to trust in the past."""
    found = _judged(0.5)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.UNKNOWN
    assert "the job is another one" in found.closed.outcome_why
    assert [size.nodes for size in found.curve.sizes] == [4] and found.curve.refused == ()
    assert found.decision is not None and found.decision.rule is Rule.GOODPUT
    assert found.decision.is_probe, "of other sizes nothing is known"


def test_known_size_that_is_a_little_slower_is_no_sign_of_another_job() -> None:
    found = _judged(0.97)
    assert found.closed is not None and "less than half of its promise" in found.closed.outcome_why
    assert "another one" not in found.closed.outcome_why
    assert [size.nodes for size in found.curve.sizes] == [4, 8]


def test_size_that_was_tried_says_nothing_of_the_job() -> None:
    """Its promise was a guess."""
    found = _judged(0.5, replace(SHRUNK, is_probe=True, candidates=()))
    assert found.closed is None or "another one" not in found.closed.outcome_why
    assert 8 in [size.nodes for size in found.curve.sizes]


def test_more_steps_than_in_proportion_to_the_nodes_are_those_of_another_job() -> None:
    """Four nodes make three times what three and six did: both are of before."""
    curve = measured({3: 1 / 0.28, 6: 1 / 0.4, 12: 1 / 0.53})
    found = with_windows(curve, [_window(4, 1.07)])
    assert [size.nodes for size in found.sizes] == [4] and found.is_superlinear
    slower = with_windows(curve, [_window(4, 0.1)])
    assert [size.nodes for size in slower.sizes] == [4], "six nodes would make four times as much"
    as_before = with_windows(curve, [_window(4, 0.32)])
    assert [size.nodes for size in as_before.sizes] == [3, 4, 6, 12]


def test_job_that_really_scales_beyond_proportion_is_believed_the_second_time() -> None:
    """Else it would go to and fro between two sizes for ever."""
    curve = measured({2: 1.0})
    curve = with_windows(curve, [_window(4, 5.0)])
    assert [size.nodes for size in curve.sizes] == [4]
    curve = with_windows(curve, [_window(2, 1.0)])
    assert [size.nodes for size in curve.sizes] == [2, 4]


def _window(nodes: int, rate: float) -> MeasuredWindow:
    return MeasuredWindow(
        generation=Generation(9), nodes=nodes, steps=round(1000 * rate), seconds=1000.0
    )


def test_noise_of_the_job_counts_in_what_is_far() -> None:
    steps_s = (1.0, 1.3) * 10
    noisy = fitted(
        with_windows(
            Curve(),
            [
                MeasuredWindow(generation=Generation(1), nodes=4, steps=100, seconds=100 * each)
                for each in steps_s
            ],
        )
    )
    assert not is_another_job(noisy, 4, 1.0, 0.75)
    assert is_another_job(measured({4: 1.0}, windows=6), 4, 1.0, 0.75)

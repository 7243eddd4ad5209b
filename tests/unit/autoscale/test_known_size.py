"""A size that was measured and does not bring what it brought tells that the job is another one."""

from dataclasses import replace

from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import is_another_job, with_windows
from elasticd.autoscale.decide import Decided, decide
from elasticd.autoscale.seen import MeasuredWindow
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, Outcome, Rule
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
    assert found.closed is not None and found.closed.outcome is Outcome.UNKNOWN
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
    found = _judged(0.5, replace(SHRUNK, is_probe=True))
    assert found.closed is None or "another one" not in found.closed.outcome_why
    assert 8 in [size.nodes for size in found.curve.sizes]


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

"""What `explain` says of a job: the same words for the terminal, programs and other views."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.autoscale.explain.curve_table import curve_points, curve_rows, fit_sentence
from elasticd.autoscale.explain.decision_text import outcome_sentence
from elasticd.autoscale.explain.end_time import end_sentence, end_time
from elasticd.autoscale.explain.explanation import explain_plain, explain_sections
from elasticd.autoscale.explain.quantity import number, span
from elasticd.autoscale.explain.size_wishes import (
    HELD,
    held_since_unix_s,
    missing_sentence,
    size_sentence,
    summary,
)
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.policy import BudgetRule
from elasticd.records.job import Want
from elasticd.records.reason import Phase
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaled import (
    AT_S,
    CURVE,
    JOB,
    KEYS,
    MEMORY,
    POLICY,
    autoscaled,
    report_of,
)

WISH = Want(writer="autoscaler", nodes=2, why="3 were taken back", since_unix_s=AT_S + 400.0)


def _text(store: MemoryStore, *, last: int = 0) -> str:
    sections = explain_sections(
        report_of(store), leader="led by asc-1", last=last, now_unix_s=AT_S + 600.0
    )
    return "\n".join(line for section in sections for line in section.lines)


def test_explain_says_who_wants_what_is_held_and_what_came_of_each_decision() -> None:
    """A person who reads it needs no other command."""
    text = _text(autoscaled(wants=(WISH,)))
    for part in (
        "job digits: running on 2 of 2 wanted nodes, generation 4",
        "policy set by ada@host at 20",
        "goodput: as many nodes as earn the cost of the change within 30 min",
        "throughput at least 800 (supply), not older than 60 s, by: sum(rate(",
        "led by asc-1",
        "size: 2 nodes, wished for by the autoscaler since 20",
        "held since 20",
        "(stale): The newest sample of throughput is 95 s old",
        "goodput says: 2 nodes stay: 3 were taken back",
        "#1 1 -> 2 nodes (goodput): 2 nodes earn the cost",
        "it saw: step_s 0.4",
        "            1 node: 2.5 steps/s measured\n",
        "          > 2 nodes: 4.2 steps/s by the fit, +3054 steps within the horizon\n",
        "promised 4.2 steps/s, from 2.5 steps/s, got 4 steps/s: it was kept",
        "#2 2 -> 3 nodes (goodput, tried)",
        "promised 5 steps/s, from 4 steps/s, got 3.33 steps/s: it was taken back",
        "#3 3 -> 2 nodes (take_back)",
        "it promised no throughput; what comes of it is not known yet",
    ):
        assert part in text, f"{part!r} is not in\n{text}"


def test_newest_decision_comes_first_and_older_ones_are_counted() -> None:
    """`--last 1` names what it leaves out; decisions no longer kept count as well."""
    text = _text(autoscaled(), last=1)
    assert "decisions, the newest 1 of 3, the newest first:" in text and "and 2 older" in text
    assert "#3" in text and "#2" not in text
    late = Decision(number=900, uid="u1", rule=Rule.IDLE, from_nodes=2, to_nodes=1, why="paused")
    assert "and 899 older" in _text(autoscaled(decisions=(late,)))


def test_job_that_is_over_is_explained_from_its_records() -> None:
    """Nobody leads a job that is over; its decisions and its curve still stand."""
    text = _text(autoscaled(phase=Phase.SUCCEEDED))
    assert "job digits: succeeded" in text and "led by" not in text
    assert "#1 1 -> 2" in text and "curve: fit of 3 sizes" in text


def test_job_without_a_policy_is_told_how_it_gets_one() -> None:
    """And nothing else is made up."""
    text = _text(autoscaled(policy=None, memory=None, curve=None, decisions=()))
    assert "it has no policy: `elasticd autoscale set digits policy.toml` gives it one" in text
    assert "decisions" not in text and "curve" not in text


def test_records_of_an_earlier_job_of_the_name_count_for_nothing() -> None:
    """They stand until the new job's submitter has removed them."""
    other = replace(POLICY, uid="another")
    store = autoscaled(policy=other, memory=None, curve=replace(CURVE, uid="x"), decisions=())
    assert report_of(store).autoscaling is None


def test_policy_of_a_newer_schema_is_named_and_the_rest_is_told() -> None:
    """`status` and `explain` of an older version go on beside a newer autoscaler."""
    store = autoscaled()
    store.commit(_raw_policy())
    report = report_of(store)
    assert report.autoscaling is not None and report.autoscaling.policy is None
    assert "has schema 9.0" in _text(store) and "#1 1 -> 2" in _text(store)


def test_plain_values_are_json_and_hold_the_curve_with_its_fit() -> None:
    """For programs: all that the sentences say."""
    plain = explain_plain(report_of(autoscaled()), last=2, now_unix_s=AT_S + 600.0)
    told = json.loads(json.dumps(plain))
    assert told["held"] == "stale" and told["held_since_unix_s"] == AT_S + 470.0
    assert [point["nodes"] for point in told["curve"]["points"]] == [1, 2, 3, 4]
    assert [point["is_measured"] for point in told["curve"]["points"]] == [True, True, True, False]
    assert [decision["number"] for decision in told["decisions"]] == [2, 3]
    assert told["end"]["steps_left"] == 6_000
    assert told["policy"]["set_by"] == "ada@host"


def test_hold_of_the_policy_before_is_told_to_no_program_either() -> None:
    """As the text has it: nobody has looked at this policy yet."""
    other = replace(MEMORY, policy_at_unix_s=1.0)
    plain = explain_plain(report_of(autoscaled(memory=other)), last=0, now_unix_s=AT_S)
    assert (plain["memory"], plain["held"], plain["held_since_unix_s"]) == (None, "", 0.0)
    assert "no autoscaler has looked at this policy yet" in _text(autoscaled(memory=other))


def test_every_word_of_a_hold_has_a_sentence() -> None:
    """A new word in the closed list is a new sentence here, and a row in the guide."""
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "autoscaling.md").read_text()
    assert [word for word in HELD if f"`{word}`" not in guide] == []
    assert HELD.keys() == set(map(str, HoldReason))


def test_hold_is_as_old_as_its_writer_measured() -> None:
    """Its age is on the writer's own clock; the wall clock only says when it wrote."""
    assert held_since_unix_s(MEMORY) == AT_S + 500.0 - 30.0
    assert held_since_unix_s(replace(MEMORY, held="")) == 0.0


def test_size_names_the_person_before_the_autoscaler() -> None:
    """And how the pin is taken back."""
    pin = Want(writer="user", nodes=3, why="elasticd scale", since_unix_s=AT_S)
    sentence = size_sentence(report_of(autoscaled(wants=(WISH, pin))))
    assert sentence.startswith("size: 3 nodes, wished for by a person since 20")
    assert "the autoscaler's wish for 2 comes after that (`elasticd scale digits auto`" in sentence
    assert "nobody wishes for another size" in size_sentence(report_of(autoscaled()))


def test_size_outside_of_the_jobs_range_says_what_was_asked_for() -> None:
    """The wish stands, and the job has as many as it may."""
    big = Want(writer="autoscaler", nodes=9, why="load")
    assert "size: 4 nodes (asked for 9)" in size_sentence(report_of(autoscaled(wants=(big,))))


def test_what_is_missing_is_told_by_the_decision_or_by_the_job() -> None:
    """A wish with no node free stands, and says what it lacks."""
    wish = replace(WISH, nodes=4)
    asked = Decision(
        number=4,
        uid="u1",
        rule=Rule.TARGET,
        from_nodes=2,
        to_nodes=4,
        why="throughput",
        missing="no other node is registered",
    )
    with_reason = report_of(autoscaled(wants=(wish,), decisions=(asked,)))
    assert missing_sentence(with_reason) == (
        "missing: 2 nodes of the 4 wanted: no other node is registered"
    )
    assert missing_sentence(report_of(autoscaled(wants=(wish,)))).endswith("no other node is free")
    assert missing_sentence(report_of(autoscaled(wants=(WISH,)))) == ""


def test_room_that_is_missing_above_the_limits_is_told_while_all_nodes_train() -> None:
    """No decision says it: the job has had that size before the rules asked for more."""
    said = "The rules ask for 12 nodes, and at most 4 are allowed."
    report = report_of(autoscaled(wants=(WISH,), memory=replace(MEMORY, missing=said)))
    assert missing_sentence(report) == f"missing: {said}"
    other = replace(MEMORY, missing=said, policy_at_unix_s=1.0)
    assert missing_sentence(report_of(autoscaled(wants=(WISH,), memory=other))) == ""


def test_end_of_a_deadline_has_an_error_and_stands_beside_the_deadline() -> None:
    """6,000 steps of 0.25 s on two nodes: two windows that differ by 2 % do not make that sure."""
    report = report_of(autoscaled())
    found = end_time(report)
    assert found is not None and found.is_measured
    assert found.left_s == pytest.approx(1_500.0) and found.error_s == pytest.approx(27.7, abs=0.1)
    said = end_sentence(report, AT_S + 600.0)
    assert "± 27.7 s, " in said and "in 25 min on 2 nodes (measured)" in said
    assert said.endswith("25 min before the deadline")
    assert end_sentence(report, AT_S + 3_000.0).endswith("15 min after the deadline")


def test_end_by_the_fit_has_a_larger_error_than_a_measured_one() -> None:
    """What is not known is said to be not known."""
    by_fit, measured = end_time(report_of(autoscaled(nodes=4))), end_time(report_of(autoscaled()))
    assert by_fit is not None and measured is not None
    assert by_fit.error_s / by_fit.left_s > 5 * measured.error_s / measured.left_s
    assert "on 4 nodes (by the fit)" in end_sentence(report_of(autoscaled(nodes=4)), AT_S)
    nothing = report_of(autoscaled(curve=None))
    assert "not known yet" in end_sentence(nothing, AT_S)
    assert "all 10000 steps are made" in end_sentence(report_of(autoscaled(step=10_000)), AT_S)


def test_end_that_no_calendar_has_is_said_as_such() -> None:
    """The most steps that a policy may have, of a minute each: the C library knows no such year."""
    slow = replace(CURVE, sizes=tuple(replace(size, step_s=60.0) for size in CURVE.sizes))
    policy = replace(POLICY, deadline=None, budget=BudgetRule(steps=2**53, node_hours=1.0))
    said = end_sentence(report_of(autoscaled(curve=slow, policy=policy)), AT_S)
    assert f"the last {2**53 - 4_000} steps end at after the year 9999" not in said
    assert f"the last {2**53 - 4_000} steps end after the year 9999 ± " in said


def test_measured_size_beats_the_fit_in_the_curve() -> None:
    """The fit says 0.253 s at three nodes, the job took 0.3 s."""
    points = {point.nodes: point for point in curve_points(CURVE, most=4)}
    assert points[3].step_s == 0.3 and points[3].fit_s == pytest.approx(0.2067, abs=1e-3)
    assert points[4].fit_s == pytest.approx(0.1975)
    assert points[4].step_s == pytest.approx(0.1975 * 0.3 / 0.2067, rel=1e-3), "as the fit is off"
    rows = curve_rows(CURVE, now=2, most=4)
    assert [row[0] for row in rows] == ["1", "2 *", "3", "4"]
    assert rows[1] == ("2 *", "250 ms ± 5 ms", "4", "+1.5", "measured, 2 windows, 200 steps")
    assert rows[2][-1] == "measured, 1 window, 90 steps; taken back"
    assert rows[3][-1] == "fit"


def test_long_curve_keeps_what_was_measured_and_what_is_near() -> None:
    """A job of up to a thousand nodes has a table that can be read."""
    rows = curve_rows(CURVE, now=2, most=1_000)
    assert [row[0] for row in rows[:4]] == ["1", "2 *", "3", "4"] and len(rows) == 16


def test_curve_without_a_fit_or_without_anything_says_so() -> None:
    """No number is made up."""
    assert fit_sentence(Curve()) == "no size has been measured yet"
    bare = replace(CURVE, a=0.0, b=0.0, c=0.0, changes=0)
    assert fit_sentence(bare) == "3 sizes measured, too little for a fit"
    assert len(curve_points(bare, most=4)) == 3


@pytest.mark.parametrize("outcome", DecisionOutcome)
def test_every_outcome_is_a_sentence(outcome: DecisionOutcome) -> None:
    """Also those that promised nothing."""
    decision = Decision(number=1, rule=Rule.IDLE, from_nodes=2, to_nodes=1, why="", outcome=outcome)
    assert outcome_sentence(decision).startswith("it promised no throughput")
    told = outcome_sentence(replace(decision, outcome_why="It promised 5, and brought 4."))
    is_known = outcome not in (DecisionOutcome.OPEN, DecisionOutcome.DRY_RUN)
    assert told.count("promised") == 1 and told.endswith("brought 4.") is is_known


def test_summary_is_one_line_and_empty_without_a_policy() -> None:
    """For `top`."""
    said = summary(report_of(autoscaled(wants=(WISH,))))
    assert said.startswith("autoscaler: held since 20") and "\n" not in said
    assert said.endswith("wants 2 nodes: 3 were taken back")
    assert summary(report_of(autoscaled(policy=None))) == ""
    assert summary(report_of(autoscaled(phase=Phase.SUCCEEDED))) == ""
    new = summary(report_of(autoscaled(memory=None, decisions=())))
    assert new == "autoscaler: no autoscaler has looked at this policy yet"


def test_what_was_remembered_of_another_policy_is_not_told_of_this_one() -> None:
    """Until the next evaluation nobody has looked at a policy that was set a moment ago."""
    store = autoscaled(policy=replace(POLICY, set_at_unix_s=AT_S + 510.0), wants=(WISH,))
    text = _text(store)
    assert "no autoscaler has looked at this policy yet" in text
    assert "held since" not in text and "goodput says" not in text
    assert "held since" not in summary(report_of(store))


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0 s"), (0.0312, "31.2 ms"), (1.5, "1.5 s"), (90.0, "90 s"), (1800.0, "30 min")],
)
def test_spans_are_told_in_the_unit_that_suits(value: float, said: str) -> None:
    """As people write them."""
    assert span(value) == said


def test_numbers_are_short() -> None:
    """Whole ones as they are."""
    assert (number(800.0), number(0.12345), number(1e300)) == ("800", "0.1235", "1e+300")


def _raw_policy() -> Txn:
    value = b'{"kind":"Policy","schema":"9.0"}'
    return Txn(then=(Put(key=KEYS.policy(JOB), value=value),))


@pytest.mark.parametrize("rule", [Rule.TAKE_BACK, Rule.GOODPUT])
def test_decision_that_stands_is_not_called_worth_it(rule: Rule) -> None:
    """One may bring less than it promised, and stand since nothing that is known is better."""
    smaller = Decision(
        number=2,
        uid="u1",
        rule=rule,
        from_nodes=4,
        to_nodes=2,
        why="fewer are tried",
        is_probe=True,
        was_steps_per_s=5.0,
        promised_steps_per_s=4.0,
        got_steps_per_s=2.0,
        outcome=DecisionOutcome.KEPT,
    )
    said = outcome_sentence(smaller)
    assert said == "promised 4 steps/s, from 5 steps/s, got 2 steps/s: it was kept"
    why = "It promised 4 steps/s after 5, and brought 2: more lost than it said."
    assert outcome_sentence(replace(smaller, outcome_why=why)) == f"it was kept: {why}"

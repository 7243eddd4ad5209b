"""Another policy on what a real job has measured."""

import time
from dataclasses import replace

import pytest

from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.policy_file.parser import parsed
from elasticd.autoscale.simulator.replay import JobHistory, Size, replay, simulated_policy
from elasticd.errors import Refused
from elasticd.records.autoscale.curve import Curve, SizeMeasured
from elasticd.records.autoscale.decision import Decision, Rule
from elasticd.records.autoscale.policy import Policy
from tests.fixtures.patience import patience_s

AT_S = 1_700_000_000.0
SATURATES = fitted(
    Curve(
        sizes=tuple(
            SizeMeasured(nodes=n, step_s=0.1 + 1.2 / n + 0.01 * (n - 1), steps=200.0, windows=3)
            for n in (1, 2, 4)
        ),
        change_cost_s=0.3,
        changes=2,
    )
)
HISTORY = JobHistory(
    job="digits",
    min_nodes=1,
    max_nodes=8,
    curve=SATURATES,
    sizes=(Size(at_unix_s=AT_S, nodes=8), Size(at_unix_s=AT_S + 1_800.0, nodes=4)),
    end_unix_s=AT_S + 3_600.0,
    steps=9_000,
)


def policy(text: str) -> Policy:
    return parsed(text, file="x.toml", now_unix_s=AT_S)


def test_shipped_rules_settle_where_the_last_node_is_worth_half() -> None:
    """On the job's own curve, over the time that it lasted, from the size that it began with."""
    trace = replay(HISTORY, policy("[goodput]\n"))
    assert trace.points[-1].at_s == 3_600.0 and trace.points[0].nodes == 8
    assert trace.points[-1].nodes in (4, 5, 6), "which are worth the same to one part in a hundred"
    assert trace.decisions and 0 < trace.node_hours < 8.0
    assert any("taken from the fit: 3, 5, 6, 7, 8" in note for note in trace.notes)


def test_node_hours_are_those_of_the_jobs_worlds() -> None:
    """Half an hour on eight nodes, and half of one on four."""
    assert HISTORY.node_hours == pytest.approx(6.0) and HISTORY.lasted_s == 3_600.0


def test_deadline_is_one_of_the_jobs_time() -> None:
    """It is met on fewer nodes than the job had."""
    trace = replay(HISTORY, policy('[deadline]\nsteps = 5000\nwithin = "50m"\n'))
    done_s = next(each for each in trace.points if each.at_s >= 3_000.0)
    made = sum(each.rate * 15.0 for each in trace.points if each.at_s <= done_s.at_s)
    assert made >= 5_000 and trace.node_hours < HISTORY.node_hours
    assert {each.rule for each in trace.decisions} == {Rule.DEADLINE}


def test_nodes_that_decisions_told_of_are_those_that_were_there() -> None:
    """Else as many as the job ever had; both are said."""
    told = Decision(
        number=1, rule=Rule.GOODPUT, from_nodes=2, to_nodes=2, why="", inputs={"available": 2.0},
        at_unix_s=AT_S + 600.0,
    )  # fmt: skip
    small = replace(HISTORY, sizes=(Size(at_unix_s=AT_S, nodes=2),), decisions=(told,))
    trace = replay(small, policy("[goodput]\n"))
    assert {each.available for each in trace.points} == {2}
    assert any("from the decisions" in note for note in trace.notes)
    trace = replay(HISTORY, policy("[goodput]\n"))
    assert {each.available for each in trace.points} == {8}
    assert any("as it ever had: 8" in note for note in trace.notes)


def test_what_nobody_can_know_is_left_out_and_said() -> None:
    """The answers of queries, pauses, prices."""
    text = """
[goodput]
[idle]
[budget]
steps = 9
cost = 1
price = "p"
[target]
[[target.metrics]]
name = "q"
query = "q"
load = 1
"""
    left, notes = simulated_policy(policy(text))
    assert (left.target, left.idle, left.budget) == (None, None, None)
    assert [note.partition(" ")[0] for note in notes] == ["[target]", "[idle]", "[budget]"]
    only = "[target]\n[[target.metrics]]\nname = 'q'\nquery = 'q'\nload = 1\n"
    with pytest.raises(Refused, match="Nothing of this policy can be simulated"):
        simulated_policy(policy(only))


@pytest.mark.parametrize(
    "text", ["[goodput]\n", "[goodput]\n[budget]\nsteps = 90000\nnode_hours = 9\n"]
)
def test_max_of_a_million_is_answered_as_soon_as_a_small_one(text: str) -> None:
    """And with the same decisions: there were never that many nodes."""
    many = replace(HISTORY, max_nodes=1_000_000)
    began_s = time.thread_time()
    trace = replay(many, policy(text))
    assert time.thread_time() - began_s < patience_s(5.0), (
        "where each size is looked at it takes minutes"
    )
    known = replay(replace(HISTORY, max_nodes=64), policy(text))
    assert trace.points == known.points and trace.decisions == known.decisions
    assert "MAX is 1000000, and taken for 64, since there were far fewer nodes" in trace.notes


def test_job_that_measured_nothing_cannot_be_simulated() -> None:
    """One sentence that says how it could be."""
    with pytest.raises(Refused, match="has measured no size yet"):
        replay(replace(HISTORY, curve=Curve()), policy("[goodput]\n"))

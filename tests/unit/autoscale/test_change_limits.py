"""What limits a change of size, whichever rule asks for it: `max_step`, the cooldown, a budget."""

from dataclasses import replace

import pytest

from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.policy import (
    BudgetRule,
    DeadlineRule,
    GoodputRule,
    IdleRule,
    Policy,
)
from elasticd.records.ids import Generation
from tests.unit.autoscale.seen_scene import SEEN
from tests.unit.autoscale.test_decide import MEMORY, measured_curve, once

LARGE = BudgetRule(steps=1_000, node_hours=1e6)
BUDGET = Policy(budget=LARGE, set_at_unix_s=1.0)
CURVE = measured_curve({2: 2.0, 4: 1.0})


def test_job_without_a_wish_for_a_size_grows_by_max_step_and_after_the_cooldown() -> None:
    """Its largest size is no limit that a person has set: nothing is wrong with the present one."""
    policy = replace(BUDGET, max_step=1)
    first = once(SEEN, policy, curve=CURVE)
    assert first.wanted == 5 and first.decision is not None
    assert first.decision.rule is Rule.LIMITS and "max_step is 1" in first.decision.why
    seen = replace(SEEN, nodes=5, wanted=5, generation=Generation(4))
    curve = measured_curve({2: 2.0, 4: 1.0, 5: 0.8})
    soon = once(replace(seen, now_s=1029.0), policy, first.memory, first.decision, curve)
    assert (soon.wanted, soon.held) == (None, "cooldown")
    late = once(replace(seen, now_s=1030.0), policy, first.memory, first.decision, curve)
    assert late.wanted == 6


@pytest.mark.parametrize(("max_nodes", "least"), [(3, 0), (0, 6)])
def test_size_that_is_not_allowed_waits_for_neither(max_nodes: int, least: int) -> None:
    policy = replace(BUDGET, max_step=1, max_nodes=max_nodes, min_nodes=least)
    memory = replace(MEMORY, decided_s=999.0)
    seen = replace(SEEN, has_full_window=False)
    assert once(seen, policy, memory, curve=CURVE).wanted == (max_nodes or least)


@pytest.mark.parametrize(("max_nodes", "least"), [(2, 0), (0, 6)])
def test_limit_that_a_person_moved_counts_at_once_where_a_rule_asks_too(
    max_nodes: int, least: int
) -> None:
    """The rule's wish is one within the limits, and `max_step` or the cooldown led outside them."""
    policy = Policy(
        goodput=GoodputRule(), max_step=1, max_nodes=max_nodes, min_nodes=least, set_at_unix_s=1.0
    )
    memory = replace(MEMORY, decided_s=999.0)
    found = once(SEEN, policy, memory, curve=CURVE)
    assert found.wanted == (max_nodes or least) and found.decision is not None
    assert found.decision.rule is Rule.GOODPUT


def test_growth_that_is_taken_back_goes_no_further_than_max_step() -> None:
    """Although the budget asks for one node at once."""
    tight = BudgetRule(steps=10_500, node_hours=8.0)
    policy = Policy(goodput=GoodputRule(), budget=tight, max_step=1, set_at_unix_s=1.0)
    curve = measured_curve({1: 2.0, 2: 1.95, 3: 1.92, 4: 1.9})
    opened = Decision(
        number=1, uid="u1", rule=Rule.GOODPUT, from_nodes=3, to_nodes=4, why="grow",
        generation=Generation(2), was_steps_per_s=0.52, promised_steps_per_s=1.0,
    )  # fmt: skip
    memory = replace(
        MEMORY, decisions=1, open_decision=1, judged_from=Generation(3), judged_steps=63,
        judged_s=120.0,
    )  # fmt: skip
    found = once(SEEN, policy, memory, opened, curve)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.TAKEN_BACK
    assert found.wanted == 3
    assert once(SEEN, replace(policy, max_step=0), memory, opened, curve).wanted == 1


@pytest.mark.parametrize("rule", [None, GoodputRule()])
def test_job_whose_budget_has_no_steps_left_grows_no_further(rule: GoodputRule | None) -> None:
    """It trains beyond the steps that the budget pays for: nobody said what those may cost."""
    spent = BudgetRule(steps=SEEN.step, node_hours=0.1)
    policy = replace(BUDGET, budget=spent, goodput=rule)
    found = once(replace(SEEN, used_node_hours=0.2), policy, curve=CURVE)
    assert (found.wanted, found.decision) == (None, None)
    assert found.memory.sentences["budget"] == "All 500 steps are made."
    growing = replace(policy, budget=replace(spent, steps=100_000, node_hours=1e6))
    assert once(SEEN, growing, curve=CURVE).wanted == 8


LONG = DeadlineRule(steps=2_000, at_unix_s=1e9)
WAITS = replace(SEEN, data_share=0.95)


def test_short_wait_for_data_undoes_no_other_rule() -> None:
    """The idle rule has taken no node, so it has none to give back."""
    policy = Policy(deadline=LONG, idle=IdleRule(after_s=60.0), set_at_unix_s=1.0)
    first = once(WAITS, policy, curve=CURVE)
    assert first.wanted == 1 and first.decision is not None
    assert first.decision.rule is Rule.DEADLINE
    seen = replace(SEEN, now_s=1045.0, wanted=1)
    works = once(seen, policy, first.memory, first.decision, CURVE)
    assert (works.wanted, works.decision) == (None, None)


def test_size_that_the_limits_do_not_allow_any_more_is_not_waited_for() -> None:
    """The job had eight nodes when it began to wait, and the policy allows four."""
    policy = Policy(
        deadline=LONG, idle=IdleRule(after_s=0.0), max_nodes=4, set_at_unix_s=1.0, cooldown_s=0.0
    )
    idle = once(replace(WAITS, nodes=8, wanted=8), policy, curve=CURVE)
    assert idle.wanted == 1 and idle.memory.idle_from_nodes == 8
    back = replace(SEEN, now_s=1060.0, nodes=1, wanted=1, generation=Generation(4))
    found = once(back, policy, idle.memory, idle.decision, CURVE)
    assert found.wanted == 4
    there = replace(back, now_s=1120.0, nodes=4, wanted=4, generation=Generation(5))
    later = once(there, policy, found.memory, found.decision, CURVE)
    assert later.memory.idle_from_nodes == 0
    assert "idle" not in (later.decision.rule if later.decision is not None else "")

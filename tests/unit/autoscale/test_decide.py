"""What one evaluation of a job decides, rule by rule and fault by fault."""

from dataclasses import replace

import pytest

from elasticd.autoscale.decide import Decided, decide
from elasticd.autoscale.evaluation_input import MeasuredWindow, Observation, QueryReading
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.held import MISSING_INPUT, HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import (
    Behavior,
    BudgetRule,
    GoodputRule,
    IdleRule,
    MetricKind,
    Policy,
    TargetMetric,
    TargetRule,
)
from elasticd.records.ids import Generation
from tests.unit.autoscale.seen_scene import SEEN

QUEUE = TargetMetric(name="queue", query="queue", target=10.0, kind=MetricKind.LOAD)
LAG = TargetMetric(name="lag", query="lag", target=10.0, kind=MetricKind.LOAD)
POLICY = Policy(
    target=TargetRule(metrics=(QUEUE,), up=Behavior(), down=Behavior()),
    set_at_unix_s=1.0,
    cooldown_s=30.0,
)
MEMORY = Memory(
    uid="u1",
    now_s=995.0,
    policy_at_unix_s=1.0,
    generation=Generation(3),
    whole_since_s={"queue": 0.0, "lag": 0.0},
)


def reading(value: float) -> dict[str, QueryReading]:
    return {"queue": QueryReading(value=value)}


def once(
    seen: Observation,
    policy: Policy = POLICY,
    memory: Memory = MEMORY,
    opened: Decision | None = None,
    curve: Curve | None = None,
) -> Decided:
    return decide(policy, curve or Curve(uid="u1"), memory, opened, seen)


def test_load_above_its_target_grows_the_job_and_is_written_down() -> None:
    """The want and the decision come together, and the memory knows both."""
    found = once(replace(SEEN, readings=reading(15.0)))
    assert found.wanted == 6
    assert found.decision is not None
    assert (found.decision.number, found.decision.rule) == (1, Rule.TARGET)
    assert (found.decision.from_nodes, found.decision.to_nodes) == (4, 6)
    assert found.decision.inputs["metric queue"] == 15.0
    assert found.memory.decisions == found.memory.open_decision == 1
    assert found.memory.wanted == 6 and found.memory.resized[-1].delta == 2
    assert found.held == ""


@pytest.mark.parametrize("word", MISSING_INPUT)
def test_missing_metric_holds_the_last_size_and_is_said_once(word: HoldReason) -> None:
    """Whatever is wrong with the only metric: the word, and no size."""
    seen = replace(SEEN, readings={"queue": QueryReading(value=None, why=word, detail="see")})
    first = once(seen)
    assert (first.wanted, first.decision, first.held) == (None, None, word)
    assert "Queue" in first.held_detail
    again = once(replace(seen, now_s=1015.0), memory=first.memory)
    assert again.held == word
    assert again.memory.held_since_s == first.memory.held_since_s == 1000.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300])
def test_number_that_is_none_to_go_by_holds_the_last_size(value: float) -> None:
    """Also where the source let it through."""
    found = once(replace(SEEN, readings=reading(value)))
    assert found.wanted is None and found.held in set(HoldReason)


def test_other_metrics_grow_the_job_while_one_is_missing_and_never_shrink_it() -> None:
    """What is missing might have asked for more."""
    policy = replace(POLICY, target=TargetRule(metrics=(QUEUE, LAG), down=Behavior()))
    lag = QueryReading(value=None, why="stale")
    grown = once(replace(SEEN, readings={**reading(15.0), "lag": lag}), policy)
    assert grown.wanted == 6
    assert grown.held == HoldReason.STALE
    kept = once(replace(SEEN, readings={**reading(2.0), "lag": lag}), policy)
    assert kept.wanted is None and kept.held == HoldReason.STALE


def test_goodput_never_shrinks_the_job_while_a_metric_is_missing() -> None:
    """The two rules' wishes are one: the greater of them, and one is not known."""
    curve = measured_curve({4: 1.0, 2: 1.0})
    policy = replace(POLICY, goodput=GoodputRule())
    missing = {"queue": QueryReading(value=None, why="unreachable")}
    held = once(replace(SEEN, readings=missing), policy, curve=curve)
    assert held.wanted is None and held.held == HoldReason.UNREACHABLE
    there = once(replace(SEEN, readings=reading(0.1)), policy, curve=curve)
    assert there.wanted is not None and there.wanted < 4


def test_goodput_never_shrinks_the_job_while_a_target_can_say_nothing() -> None:
    """A supply of 0 is there, and asks for no size."""
    supply = replace(QUEUE, kind=MetricKind.SUPPLY)
    target = TargetRule(metrics=(supply,), down=Behavior())
    policy = replace(POLICY, target=target, goodput=GoodputRule())
    curve = measured_curve({4: 1.0, 2: 1.0})
    held = once(replace(SEEN, readings=reading(0.0)), policy, curve=curve)
    assert held.wanted is None and held.held == HoldReason.NOT_A_NUMBER
    there = once(replace(SEEN, readings=reading(100.0)), policy, curve=curve)
    assert there.wanted is not None and there.wanted < 4


def test_after_a_gap_one_whole_window_comes_first() -> None:
    """Averages are low right after an outage, and would shrink the job, or grow it."""
    gone = once(replace(SEEN, readings={"queue": QueryReading(value=None, why="unreachable")}))
    back = once(replace(SEEN, now_s=1015.0, readings=reading(1.0)), memory=gone.memory)
    assert back.wanted is None and back.held == HoldReason.GAP
    later = once(replace(SEEN, now_s=1070.0, readings=reading(40.0)), memory=back.memory)
    assert later.wanted is None and later.held == HoldReason.GAP
    whole = once(replace(SEEN, now_s=1075.0, readings=reading(15.0)), memory=later.memory)
    assert whole.wanted == 6 and whole.held == ""


@pytest.mark.parametrize("words", ["rate(x[10m])", "rate(x[5m] offset 5m)", "f(rate(x[5m])[5m:])"])
def test_query_that_looks_back_to_before_the_generation_does_not_count(words: str) -> None:
    """It tells of another size, or of a job that was not there yet; after that it counts."""
    queue = replace(QUEUE, query=words)
    policy = replace(POLICY, target=TargetRule(metrics=(queue,), up=Behavior(), down=Behavior()))
    young = replace(MEMORY, generation_since_s=SEEN.now_s - 599.0)
    for load in (1.0, 15.0):
        found = once(replace(SEEN, readings=reading(load)), policy, young)
        assert found.wanted is None and found.held == HoldReason.GAP
        assert "looks back 600 s, and generation 3 is 599 s old" in found.held_detail
    old = replace(MEMORY, generation_since_s=SEEN.now_s - 600.0)
    assert once(replace(SEEN, readings=reading(15.0)), policy, old).wanted == 6
    within = replace(queue, query="rate(x[$window])")
    policy = replace(policy, target=TargetRule(metrics=(within,), up=Behavior(), down=Behavior()))
    assert once(replace(SEEN, readings=reading(15.0)), policy, young).wanted == 6


def test_new_policy_waits_for_one_whole_window_and_begins_afresh() -> None:
    """It knows of no window before; the numbers of decisions go on."""
    memory = replace(MEMORY, decisions=7, wanted=4)
    policy = replace(POLICY, set_at_unix_s=2.0)
    found = once(replace(SEEN, readings=reading(15.0)), policy, memory)
    assert found.held == HoldReason.GAP and found.memory.decisions == 7
    assert found.memory.policy_at_unix_s == 2.0 and found.memory.wanted == 0


def test_new_policy_closes_the_open_decision() -> None:
    """What it promised was promised to another policy."""
    grown = once(replace(SEEN, readings=reading(15.0)))
    policy = replace(POLICY, set_at_unix_s=2.0)
    found = once(replace(SEEN, wanted=6), policy, grown.memory, grown.decision)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.UNKNOWN
    assert "policy" in found.closed.outcome_why and found.memory.open_decision == 0


def test_another_job_of_the_same_name_has_no_past() -> None:
    """Its memory and its curve are another job's."""
    curve = measured_curve({4: 1.0})
    found = once(replace(SEEN, uid="u2"), memory=replace(MEMORY, decisions=7), curve=curve)
    assert found.memory.uid == found.curve.uid == "u2"
    assert found.memory.decisions == 0 and found.curve.sizes == ()


def test_nothing_is_mixed_in_from_before_a_change_of_world() -> None:
    """The first window of a generation must be whole."""
    seen = replace(SEEN, has_full_window=False, readings=reading(15.0))
    found = once(seen)
    assert found.wanted is None and found.held == HoldReason.NO_WINDOW


def test_job_without_steps_has_its_window_by_the_time_of_its_generation() -> None:
    """A job of restart mode reports none, and its metrics are to be followed all the same."""
    seen = replace(SEEN, step=0, has_full_window=False, readings=reading(15.0))
    memory = replace(MEMORY, generation=Generation(2))
    first = once(seen, memory=memory)
    assert first.held == HoldReason.NO_WINDOW
    assert once(replace(seen, now_s=1055.0), memory=first.memory).held == HoldReason.NO_WINDOW
    assert once(replace(seen, now_s=1060.0), memory=first.memory).wanted == 6


def test_pin_stands_and_says_so() -> None:
    """Nothing is decided above a person's wish, and what is open is not known any more."""
    grown = once(replace(SEEN, readings=reading(15.0)))
    pinned = replace(SEEN, wanted=2, is_pinned=True, pinned_by="the user", readings=reading(90.0))
    found = once(pinned, memory=grown.memory, opened=grown.decision)
    assert (found.wanted, found.decision, found.held) == (None, None, HoldReason.PINNED)
    assert "the user" in found.held_detail and "scale digits auto" in found.held_detail
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.UNKNOWN


def test_job_that_does_not_run_is_left_alone() -> None:
    """Between two worlds nothing says anything."""
    found = once(replace(SEEN, is_running=False, readings=reading(15.0)))
    assert (found.wanted, found.held) == (None, HoldReason.NOT_RUNNING)


def test_restart_mode_needs_the_policys_leave() -> None:
    """A change would end the scripts."""
    seen = replace(SEEN, is_in_process=False, readings=reading(15.0))
    refused = once(seen)
    assert refused.wanted is None and refused.held == HoldReason.RESTART_MODE
    assert "allow_restarts" in refused.held_detail
    assert once(seen, replace(POLICY, allow_restarts=True)).wanted == 6


def test_wish_above_the_limit_stands_and_says_what_is_missing() -> None:
    """It is cut to what may be, and nodes that are not there are wished for."""
    found = once(replace(SEEN, available=5, readings=reading(100.0)))
    assert found.wanted == 8
    assert found.decision is not None
    assert "40 nodes" in found.decision.missing and "8 are allowed" in found.decision.missing
    assert "3 of 8 nodes are missing" in found.decision.missing
    after = replace(SEEN, now_s=1090.0, wanted=8, available=5, readings=reading(100.0))
    standing = once(after, memory=found.memory, opened=found.decision)
    assert standing.wanted is None and standing.closed is None
    assert "3 of 8 nodes are missing" in standing.missing


def test_job_that_has_all_it_may_have_says_what_the_rules_ask_for() -> None:
    """No decision follows, so whoever asks reads it in the memory; it goes when it is over."""
    full = replace(SEEN, nodes=8, wanted=8)
    found = once(replace(full, readings=reading(15.0)))
    assert found.decision is None
    assert found.memory.missing == "The rules ask for 12 nodes, and at most 8 are allowed."
    calm = once(replace(full, now_s=1015.0, readings=reading(10.0)), memory=found.memory)
    assert calm.memory.missing == ""
    wished = once(replace(SEEN, available=5, readings=reading(15.0)))
    assert wished.memory.missing == "1 of 6 nodes are missing: 5 train or could join."


def test_wish_without_its_nodes_is_no_broken_promise() -> None:
    """The job came to 5 of 8 nodes, and what that makes says nothing of 8."""
    found = once(replace(SEEN, available=5, readings=reading(100.0)))
    seen = replace(SEEN, now_s=1090.0, nodes=5, wanted=8, available=5, generation=Generation(4))
    found = once(replace(seen, readings=reading(50.0)), memory=found.memory, opened=found.decision)
    assert found.closed is not None and found.closed.outcome is DecisionOutcome.UNKNOWN
    assert "5 nodes, and not on the 8" in found.closed.outcome_why


def test_cooldown_comes_between_two_decisions() -> None:
    """After a change no other one for so long."""
    first = once(replace(SEEN, readings=reading(15.0)))
    seen = replace(SEEN, nodes=6, wanted=6, generation=Generation(4), readings=reading(15.0))
    held = once(replace(seen, now_s=1029.0), memory=first.memory, opened=first.decision)
    assert held.wanted is None and held.held == HoldReason.COOLDOWN
    done = once(replace(seen, now_s=1030.0), memory=first.memory, opened=first.decision)
    assert done.wanted == 8
    assert done.closed is not None and "Decision 2 came before" in done.closed.outcome_why


def test_want_that_is_not_seen_yet_is_not_decided_again() -> None:
    """The next evaluation may come before the watch; where the want is lost it is written anew."""
    policy = replace(POLICY, min_nodes=6)
    first = once(SEEN, policy)
    assert first.wanted == 6 and first.decision is not None
    unseen = once(replace(SEEN, now_s=1000.1), policy, first.memory, first.decision)
    assert (unseen.wanted, unseen.decision, unseen.closed) == (None, None, None)
    lost = once(replace(SEEN, now_s=1006.0), policy, unseen.memory, first.decision)
    assert lost.wanted == 6 and lost.closed is not None


def test_max_step_cuts_a_change_in_both_directions() -> None:
    """And the sentence says so."""
    policy = replace(POLICY, max_step=1)
    up = once(replace(SEEN, readings=reading(20.0)), policy)
    down = once(replace(SEEN, readings=reading(1.0)), policy)
    assert (up.wanted, down.wanted) == (5, 3)
    assert up.decision is not None and "max_step is 1" in up.decision.why


@pytest.mark.parametrize("load", [10.0, 20.0])
def test_max_step_leaves_a_wish_that_stands_while_nodes_are_lost(load: float) -> None:
    """Of four nodes three are lost: nobody asked for fewer, whatever one step from one node is."""
    policy = replace(POLICY, max_step=1)
    lost = replace(SEEN, nodes=1, wanted=4, available=1, readings=reading(load * 4))
    assert once(lost, policy).wanted is None
    fewer = once(replace(lost, readings=reading(20.0)), policy).decision
    assert fewer is not None and fewer.to_nodes == 2


def test_dry_run_writes_down_and_does_nothing() -> None:
    """Once, and not at every evaluation."""
    policy = replace(POLICY, is_dry_run=True)
    first = once(replace(SEEN, readings=reading(15.0)), policy)
    assert first.wanted is None and first.decision is not None
    assert first.decision.outcome is DecisionOutcome.DRY_RUN and first.memory.open_decision == 0
    assert first.memory.resized == ()
    again = once(replace(SEEN, now_s=1100.0, readings=reading(15.0)), policy, first.memory)
    assert again.decision is None


def test_size_outside_of_the_limits_comes_inside_without_any_metric() -> None:
    """As the HPA does it: what is not allowed needs no measurement."""
    missing = {"queue": QueryReading(value=None, why="unreachable")}
    found = once(replace(SEEN, readings=missing), replace(POLICY, max_nodes=3))
    assert found.wanted == 3 and found.decision is not None
    assert found.decision.rule is Rule.LIMITS
    raised = once(replace(SEEN, readings=missing), replace(POLICY, min_nodes=6))
    assert raised.wanted == 6


def test_idle_job_shrinks_to_its_least_and_comes_back() -> None:
    """What it goes by is the job's own account, beside a metric that is there."""
    policy = replace(POLICY, idle=IdleRule(after_s=60.0), min_nodes=2)
    waits = replace(SEEN, data_share=0.95, readings=reading(10.0))
    first = once(waits, policy)
    assert first.wanted is None
    idle = once(replace(waits, now_s=1060.0), policy, first.memory)
    assert idle.wanted == 2 and idle.decision is not None
    assert idle.decision.rule is Rule.IDLE
    back = replace(waits, data_share=0.0, nodes=2, wanted=2, now_s=1120.0)
    assert once(back, policy, idle.memory, idle.decision).wanted == 4


GONE = {"queue": QueryReading(value=None, why="unreachable", detail="nobody answers")}


def test_idle_job_keeps_its_nodes_while_a_metric_is_missing() -> None:
    """What is missing might have asked for more; the size of before comes back without it."""
    policy = replace(POLICY, idle=IdleRule(after_s=60.0))
    waits = replace(SEEN, data_share=0.95, readings=GONE)
    first = once(waits, policy)
    held = once(replace(waits, now_s=1060.0), policy, first.memory)
    assert (held.wanted, held.decision, held.held) == (None, None, HoldReason.UNREACHABLE)
    assert "nothing makes the job smaller: idle asks for 1 node" in held.held_detail
    again = once(replace(waits, now_s=1075.0), policy, held.memory)
    assert again.memory.held_since_s == first.memory.held_since_s, "said once"
    there = replace(waits, readings=reading(10.0))
    gap = once(replace(there, now_s=1090.0), policy, again.memory)
    assert gap.wanted is None and gap.held == HoldReason.GAP
    idle = once(replace(there, now_s=1150.0), policy, gap.memory)
    assert idle.wanted == 1
    back = replace(waits, data_share=0.0, nodes=1, wanted=1, now_s=1200.0)
    assert once(back, policy, idle.memory, idle.decision).wanted == 4


def test_budget_takes_no_node_while_a_metric_is_missing() -> None:
    """Neither beside a metric that is there, nor where the curve says a size as well."""
    tight = BudgetRule(steps=10_500, node_hours=8.0)
    curve = measured_curve({4: 1.0, 2: 1.5, 8: 0.6})
    metrics = TargetRule(metrics=(QUEUE, LAG), up=Behavior(), down=Behavior())
    half = {**reading(15.0), "lag": QueryReading(value=None, why="stale")}
    for policy in (
        replace(POLICY, target=metrics, budget=tight),
        replace(POLICY, target=metrics, goodput=GoodputRule(), budget=tight),
    ):
        held = once(replace(SEEN, readings=half), policy, curve=curve)
        assert (held.wanted, held.decision, held.held) == (None, None, HoldReason.STALE)
        assert "nothing makes the job smaller: budget asks for 1 node" in held.held_detail
        whole = {**reading(15.0), "lag": QueryReading(value=1.0)}
        there = once(replace(SEEN, readings=whole), policy, curve=curve)
        assert there.decision is not None and there.decision.rule is Rule.BUDGET
        assert there.wanted == 1


def test_supply_of_nothing_is_there_and_keeps_no_idle_job_large() -> None:
    """A job that waits for data has a throughput of 0, which is no sign of a Prometheus away."""
    throughput = TargetMetric(name="queue", query="x", target=10.0, kind=MetricKind.SUPPLY)
    rule = TargetRule(metrics=(throughput,), down=Behavior())
    policy = replace(POLICY, target=rule, idle=IdleRule(after_s=60.0))
    waits = replace(SEEN, data_share=1.0, readings=reading(0.0))
    first = once(waits, policy)
    assert first.held == HoldReason.NOT_A_NUMBER
    assert once(replace(waits, now_s=1060.0), policy, first.memory).wanted == 1


def test_policy_that_names_no_metric_is_never_blind() -> None:
    """A budget of node-hours goes by the job's own records."""
    policy = replace(POLICY, target=None, budget=BudgetRule(steps=10_500, node_hours=8.0))
    curve = measured_curve({4: 1.0, 2: 1.5})
    assert once(replace(SEEN, readings={}), policy, curve=curve).wanted == 1


def test_growth_is_not_taken_back_while_a_metric_is_missing() -> None:
    """Also where the idle rule grows the job meanwhile, and the world is too young to measure."""
    policy = replace(POLICY, goodput=GoodputRule(), idle=IdleRule(after_s=60.0))
    curve = measured_curve({2: 2.0, 4: 1.9})
    opened = Decision(
        number=1,
        uid="u1",
        rule=Rule.GOODPUT,
        from_nodes=2,
        to_nodes=4,
        why="grow",
        generation=Generation(2),
        was_steps_per_s=0.5,
        promised_steps_per_s=1.0,
    )
    memory = replace(
        MEMORY,
        decisions=1,
        open_decision=1,
        judged_from=Generation(3),
        judged_steps=63,
        judged_s=120.0,
        idle_from_nodes=6,
    )
    held = once(replace(SEEN, readings=GONE), policy, memory, opened, curve)
    assert held.wanted is None and held.closed is None
    assert held.held == HoldReason.UNREACHABLE
    there = once(replace(SEEN, readings=reading(1.0)), policy, memory, opened, curve)
    assert there.closed is not None and there.closed.outcome is DecisionOutcome.TAKEN_BACK


def test_what_is_measured_while_a_job_waits_for_data_is_no_size_of_it() -> None:
    """The size that waits would look as slow as its data are, and others be tried for that."""
    policy = Policy(idle=IdleRule(after_s=60.0), goodput=GoodputRule(), set_at_unix_s=1.0)
    curve = measured_curve({4: 1.0, 8: 0.6})
    windows = tuple(
        MeasuredWindow(generation=Generation(3), nodes=4, steps=12, seconds=120.0) for _ in range(4)
    )
    waits = replace(SEEN, data_share=0.95, windows=windows)
    found = once(waits, policy, curve=curve)
    assert found.curve.sizes == curve.sizes and found.memory.idle_since_s is not None
    late = replace(waits, data_share=0.5, nodes=1, wanted=1)
    assert once(late, policy, found.memory, curve=curve).curve.sizes == curve.sizes
    is_data_bound = once(waits, replace(policy, idle=None), curve=curve)
    assert is_data_bound.curve.sizes != curve.sizes


def test_budget_without_its_price_holds_growth_as_well() -> None:
    """To grow on an unknown price may cost what nobody has."""
    policy = replace(POLICY, budget=BudgetRule(steps=10_000, cost=100.0, price_query="price"))
    curve = measured_curve({4: 1.0, 8: 0.5})
    found = once(replace(SEEN, readings=reading(15.0)), policy, curve=curve)
    assert found.wanted is None and found.held == HoldReason.EMPTY
    there = {**reading(15.0), "price": QueryReading(value=1.0)}
    back = once(replace(SEEN, readings=there), policy, curve=curve)
    assert back.wanted is None and back.held == HoldReason.GAP, (
        "as of any metric: it may be an average"
    )
    whole = replace(SEEN, now_s=1060.0, readings=there)
    assert once(whole, policy, memory=back.memory, curve=curve).wanted == 6


def test_policy_without_a_rule_for_the_size_wants_all_nodes() -> None:
    """An idle rule alone makes a job small while it is idle, and large else."""
    policy = replace(POLICY, target=None, idle=IdleRule())
    assert once(replace(SEEN, readings={}), policy).wanted == 8


def test_memory_is_bounded_by_its_windows() -> None:
    """A day of evaluations with a restless metric leaves a few entries."""
    memory = MEMORY
    for number in range(5760):
        seen = replace(
            SEEN, now_s=1000.0 + 15.0 * number, readings=reading(5.0 + 7.0 * (number % 3))
        )
        memory = once(seen, replace(POLICY, cooldown_s=0.0), memory).memory
    assert len(memory.proposed) <= SEEN.max_nodes * 2
    assert len(memory.resized) <= 2


def measured_curve(steps_s: dict[int, float]) -> Curve:
    """Return the curve of a job that was measured at these sizes, by `decide` itself."""
    windows = tuple(
        MeasuredWindow(
            generation=Generation(nodes), nodes=nodes, steps=int(60 / step_s), seconds=60
        )
        for nodes, step_s in steps_s.items()
        for _ in range(4)
    )
    seen = replace(SEEN, is_running=False, windows=windows, change_cost_s=(1.0,))
    return once(seen).curve


def test_wish_for_nodes_that_are_not_there_does_not_swing_with_the_noise() -> None:
    """While nothing follows from it, what stands stays."""
    policy = replace(POLICY, target=None, goodput=GoodputRule())
    curve = measured_curve({1: 4.0, 2: 2.0, 4: 1.0})
    first = once(replace(SEEN, available=4), policy, curve=curve)
    assert first.wanted == 8 and "4 of 8 nodes are missing" in first.missing
    standing = replace(SEEN, now_s=1100.0, available=4, wanted=7)
    assert once(standing, policy, first.memory, first.decision, curve).wanted is None


def test_budget_does_not_keep_a_target_waiting_for_a_verdict() -> None:
    """A queue that grows again is answered after the cooldown, within the budget."""
    policy = replace(POLICY, budget=BudgetRule(steps=10_000, node_hours=1000.0))
    curve = measured_curve({4: 1.0, 6: 0.7, 8: 0.5})
    first = once(replace(SEEN, readings=reading(15.0)), policy, curve=curve)
    assert first.wanted == 6
    seen = replace(SEEN, now_s=1070.0, nodes=6, wanted=6, generation=Generation(4))
    again = once(replace(seen, readings=reading(13.0)), policy, first.memory, first.decision, curve)
    assert again.wanted == 8


def test_world_that_does_not_follow_is_waited_for_only_so_long() -> None:
    """Else nothing would ever be decided by the curve again."""
    policy = replace(POLICY, target=None, goodput=GoodputRule())
    curve = measured_curve({2: 2.0, 4: 1.0})
    first = once(SEEN, policy, curve=curve)
    assert first.wanted == 8
    waits = replace(SEEN, wanted=8, now_s=1100.0)
    assert once(waits, policy, first.memory, first.decision, curve).held == HoldReason.PROBE
    later = replace(SEEN, wanted=8, now_s=1300.0)
    assert once(later, policy, first.memory, first.decision, curve).held == ""

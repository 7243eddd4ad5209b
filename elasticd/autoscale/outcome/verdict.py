"""Judges a decision: compares two windows at the new size with the promise.

Both windows lie within the one generation in which the new size was reached, after its first steps,
so they contain no steps from before the change. If another generation comes first, or the size was
never reached, there is no result: a wish whose nodes are missing has broken no promise.

A decision for more throughput is kept if it brought at least half of its promise. A decision for
fewer nodes is kept if it cost at most twice the predicted loss, or `LOSS_SHARE` of the throughput:
two windows can show no more than that. The rules for a target, a budget and idle nodes promise no
throughput: `supply` judges growth that a supply asked for, and `benefit` judges the others.
"""

from dataclasses import dataclass, replace

from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.hold import counted, unmeasured
from elasticd.autoscale.outcome.benefit import Benefit, benefit, idle_benefit
from elasticd.autoscale.outcome.supply import supplied
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import Policy
from elasticd.records.ids import Generation

__all__ = [
    "LOSS_SHARE",
    "DecisionVerdict",
    "closed",
    "followed",
    "forgotten",
    "is_awaited",
    "verdict",
]

LOSS_SHARE = 0.05
WINDOWS = 2
ON_ITS_WAY_WINDOWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionVerdict:
    """The outcome of one decision."""

    outcome: DecisionOutcome
    why: str
    got_steps_per_s: float = 0.0


def followed(memory: Memory, decision: Decision, seen: Observation) -> Memory:
    """Return the memory with the windows measured since the job reached the decision's size."""
    if memory.judged_from == 0 and _came_true(decision, seen):
        memory = replace(memory, judged_from=seen.generation)
    if memory.judged_from == 0:
        return memory
    own = [
        window
        for window in seen.windows
        if window.generation == memory.judged_from and window.nodes == decision.to_nodes
    ]
    return replace(
        memory,
        judged_steps=memory.judged_steps + sum(window.steps for window in own),
        judged_s=memory.judged_s + sum(window.seconds for window in own),
    )


def is_awaited(policy: Policy, memory: Memory, decision: Decision, seen: Observation) -> bool:
    """Return whether the job trains at the size whose verdict is still open, or soon will.

    The wait is limited if the job does not reach the size although there are nodes for it.
    """
    if memory.judged_from != 0:
        return True
    is_possible = decision.to_nodes <= seen.available
    if not is_possible or seen.generation != decision.generation or memory.decided_s is None:
        return False
    return seen.now_s - memory.decided_s < ON_ITS_WAY_WINDOWS * policy.window_s


def verdict(
    policy: Policy, memory: Memory, decision: Decision, seen: Observation
) -> DecisionVerdict | None:
    """Return the verdict on the open decision, by `followed` memory; None if not known yet."""
    if seen.is_pinned and seen.wanted != decision.to_nodes:
        why = f"Somebody pinned the job to {counted(seen.wanted)} before it was known."
        return DecisionVerdict(outcome=DecisionOutcome.UNKNOWN, why=why)
    if memory.judged_from == 0:
        return _not_true(policy, memory, decision, seen)
    needed_s = _needed_s(policy, decision)
    if memory.judged_s >= needed_s and memory.judged_steps > 0:
        got = memory.judged_steps / memory.judged_s
        found = _of_target(policy, decision, seen, got)
        return found or _of_benefit(policy, decision, seen, got) or _measured(decision, got)
    if _is_idle_for_long(policy, memory, decision, seen):
        return _judged(idle_benefit(decision, seen), 0.0)
    if seen.generation != memory.judged_from:
        why = (
            f"Generation {seen.generation} came when {memory.judged_s:.0f} s of {needed_s:g} s had "
            f"been measured at {counted(decision.to_nodes)}."
        )
        return DecisionVerdict(outcome=DecisionOutcome.UNKNOWN, why=why)
    return None


def closed(decision: Decision, found: DecisionVerdict) -> Decision:
    """Return the decision with its outcome."""
    return replace(
        decision,
        outcome=found.outcome,
        outcome_why=found.why,
        got_steps_per_s=found.got_steps_per_s,
    )


def forgotten(memory: Memory) -> Memory:
    """Return the memory without an open decision."""
    return replace(memory, open_decision=0, judged_from=Generation(0), judged_steps=0, judged_s=0.0)


def _came_true(decision: Decision, seen: Observation) -> bool:
    is_new = seen.generation > decision.generation
    return seen.is_running and is_new and seen.nodes == decision.to_nodes


def _not_true(
    policy: Policy, memory: Memory, decision: Decision, seen: Observation
) -> DecisionVerdict | None:
    """Return the verdict if the job has settled in another world than the decision's."""
    is_other = seen.is_running and seen.generation > decision.generation and seen.nodes > 0
    if not is_other or unmeasured(policy, memory, seen) is not None:
        return None
    why = (
        f"The job trains on {counted(seen.nodes)}, and not on the {decision.to_nodes} that were "
        f"wished for: {seen.available} are there."
    )
    return DecisionVerdict(outcome=DecisionOutcome.UNKNOWN, why=why)


def _needed_s(policy: Policy, decision: Decision) -> float:
    if decision.is_probe and policy.goodput is not None:
        return policy.goodput.probe_s
    if decision.rule is Rule.TARGET:
        return policy.window_s  # The rule speaks again after that time, before it asks for more.
    if decision.rule is Rule.TAKE_BACK:
        return policy.window_s  # The decision is kept, whatever is measured.
    return WINDOWS * policy.window_s


def _of_target(
    policy: Policy, decision: Decision, seen: Observation, got: float
) -> DecisionVerdict | None:
    """Judge growth by the supplies that asked for it; None if something else asked for it."""
    if decision.rule is not Rule.TARGET or policy.target is None:
        return None
    found = supplied(policy.target, decision, seen, got)
    if found is None:
        return None
    is_worth, why = found
    outcome = DecisionOutcome.KEPT if is_worth else DecisionOutcome.TAKEN_BACK
    return DecisionVerdict(outcome=outcome, why=why, got_steps_per_s=got)


def _of_benefit(
    policy: Policy, decision: Decision, seen: Observation, got: float
) -> DecisionVerdict | None:
    """Judge a decision without a promise by its purpose; None if the result is not known."""
    if decision.promised_steps_per_s > 0.0:
        return None
    found = benefit(policy, decision, seen, got)
    return _judged(found, got) if found is not None else None


def _judged(found: Benefit, got: float) -> DecisionVerdict:
    is_worth, why = found
    outcome = DecisionOutcome.KEPT if is_worth else DecisionOutcome.UNKNOWN
    return DecisionVerdict(outcome=outcome, why=why, got_steps_per_s=got)


def _is_idle_for_long(
    policy: Policy, memory: Memory, decision: Decision, seen: Observation
) -> bool:
    """Return whether an idle job has had its fewer nodes for as long as a measurement takes."""
    is_shrink = decision.rule is Rule.IDLE and decision.to_nodes < decision.from_nodes
    is_own = seen.is_running and seen.generation == memory.judged_from == memory.generation
    if not is_shrink or not is_own or memory.idle_since_s is None:
        return False
    return seen.now_s - memory.generation_since_s >= _needed_s(policy, decision)


def _measured(decision: Decision, got: float) -> DecisionVerdict:
    """Compare the measured steps with the promise; all numbers are steps per second."""
    was, promised = decision.was_steps_per_s, decision.promised_steps_per_s
    if promised <= 0.0 or was <= 0.0:
        before = f", {was:.4g} before" if was > 0.0 else ""
        why = f"It promised no throughput; {got:.4g} steps/s were measured{before}."
        return DecisionVerdict(outcome=DecisionOutcome.UNKNOWN, why=why, got_steps_per_s=got)
    sentence = f"It promised {promised:.4g} steps/s after {was:.4g}, and brought {got:.4g}"
    if decision.rule is Rule.TAKE_BACK or _is_kept(was, promised, got):
        return DecisionVerdict(
            outcome=DecisionOutcome.KEPT, why=f"{sentence}.", got_steps_per_s=got
        )
    what = "less than half of its promise" if promised > was else "more lost than it said"
    return DecisionVerdict(
        outcome=DecisionOutcome.TAKEN_BACK, why=f"{sentence}: {what}.", got_steps_per_s=got
    )


def _is_kept(was: float, promised: float, got: float) -> bool:
    if promised > was:
        return got - was >= (promised - was) / 2.0
    return was - got <= max(2.0 * (was - promised), LOSS_SHARE * was)

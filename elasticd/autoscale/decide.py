"""Decides about the size of one job: all rules of its policy in one pure function.

It has no clock and does no I/O: the same records and the same input give the same decision in any
process. So if a leader is killed, the next one has all that it needs.

One evaluation has these steps: the memory is brought up to the present, and the curve gets the new
measurements; the open decision gets its verdict; if anything forbids all changes, the evaluation
ends here; a decision that broke its promise is taken back; otherwise each rule proposes, and the
resulting wish is checked against cooldown, `max_step` and the present want.
"""

from dataclasses import dataclass, field, replace

from elasticd.autoscale.compose import Wish, composed, is_size_allowed, missing_nodes, stepped_size
from elasticd.autoscale.curve.cost import with_change_cost
from elasticd.autoscale.curve.fit import fitted
from elasticd.autoscale.curve.size import (
    is_another_job,
    refused,
    turned,
    with_another_job,
    with_windows,
)
from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.hold import Hold, counted, forbidden, unmeasured
from elasticd.autoscale.outcome import verdict as verdicts
from elasticd.autoscale.outcome.decision import SizeChange, decided
from elasticd.autoscale.outcome.recall import recalled, with_gaps
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.propose import proposals
from elasticd.autoscale.rules import goodput
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory, Resized
from elasticd.records.autoscale.policy import Policy

__all__ = ["Decided", "decide"]

WANT_UNSEEN_S = 5.0
"""The time in seconds for which a want may be invisible to its own writer after the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The result of one evaluation of a job; the leader writes it in one transaction."""

    memory: Memory
    """The memory to write, on the clock of `Observation.now_s`."""
    curve: Curve
    """The curve, which must be written if it differs from the given one."""
    decision: Decision | None = None
    """A new decision; its number is `memory.decisions`."""
    closed: Decision | None = None
    """An earlier decision with an outcome that is known now. The new decision may close it."""
    wanted: int | None = None
    """The size to write as the autoscaler's want; None if the stored one stays."""
    held: str = ""
    """The reason why the size stays, or may only grow: a word of `HoldReason`."""
    held_detail: str = ""
    """One sentence for people about this reason."""
    missing: str = ""
    """The nodes that the present wish lacks, as a sentence; empty if none."""
    proposals: tuple[Proposal, ...] = ()
    """The proposal of each rule, for `explain`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One evaluation that is in progress."""

    policy: Policy
    curve: Curve
    memory: Memory
    seen: Observation
    open: Decision | None
    closed: Decision | None = None
    proposals: tuple[Proposal, ...] = field(default=())


def decide(
    policy: Policy, curve: Curve, memory: Memory, open_decision: Decision | None, seen: Observation
) -> Decided:
    """Return the next decision about a job, if there is one, and the new memory.

    `memory` is on the clock of `seen.now_s` (`shifted` if another process wrote it), and
    `open_decision` is the one that `memory.open_decision` names.
    """
    seen = _with_data(policy, memory, seen)
    case = _opened(policy, curve, memory, open_decision, seen)
    stop = forbidden(policy, seen)
    cooling = _cooling(policy, case.memory, seen)
    found = None
    if case.open is not None and (cooling is None or stop is not None):
        found = verdicts.verdict(policy, case.memory, case.open, seen)
    if stop is not None:
        if found is not None and found.outcome is not DecisionOutcome.TAKEN_BACK:
            case = _closed(case, found)
        return _held(case, stop)
    if case.open is not None and found is not None and _is_worth_it(case, case.open, found):
        why = f"{found.why} No smaller size is worth more, so it is kept."
        found = replace(found, outcome=DecisionOutcome.KEPT, why=why)
    if case.open is not None and found is not None:
        case, found = _with_another_job(case, case.open, found)
    is_broken = found is not None and found.outcome is DecisionOutcome.TAKEN_BACK
    learned = case.curve
    if case.open is not None and found is not None and is_broken:
        case = _refused(case, case.open)
    elif found is not None:
        case = _closed(case, found)
    awaited = None if is_broken else _awaited(case)
    whole = with_gaps(policy, case.memory, seen)
    remembered, proposed = proposals(
        policy,
        case.curve,
        whole,
        case.memory,
        unmeasured=unmeasured(policy, case.memory, seen),
        awaited=awaited,
    )
    case = replace(case, memory=remembered, proposals=proposed)
    wish = composed(policy, whole, proposed)
    if case.open is not None and found is not None and is_broken:
        if _goes_on(case.open, wish):
            beyond = "What lies beyond it is tried before it is taken back."
            unknown = replace(found, outcome=DecisionOutcome.UNKNOWN, why=f"{found.why} {beyond}")
            return _followed(_closed(case, unknown), wish, None)
        if _stays(case.open, wish):
            why = f"{found.why} No size that was measured is worth more, so it is kept."
            kept = replace(found, outcome=DecisionOutcome.KEPT, why=why)
            return _held(_closed(replace(case, curve=learned), kept), wish.hold)
        back = _back(case, case.open, found, wish)
        if back is not None and back.nodes == seen.wanted:
            stays = replace(found, outcome=DecisionOutcome.UNKNOWN, why=f"{found.why} {wish.why}")
            return _held(_closed(case, stays), wish.hold)
        if back is None:
            # The verdict waits for the missing input: until then nothing is made smaller.
            return _held(replace(case, curve=learned), wish.blind or wish.hold)
        return _done(_closed(case, found), back)
    return _followed(case, wish, cooling)


def _with_data(policy: Policy, memory: Memory, seen: Observation) -> Observation:
    """Return the input without windows in which the job waited for its data.

    Such windows show the rate of the data, and nothing of the job's sizes. This is done only under
    a rule that counts waiting as idle; otherwise a job that waits is a job whose nodes are worth
    little.
    """
    rule = policy.idle
    if rule is None or (memory.idle_since_s is None and seen.data_share < rule.data_share):
        return seen
    return replace(seen, windows=())


def _opened(
    policy: Policy, curve: Curve, memory: Memory, decision: Decision | None, seen: Observation
) -> _Case:
    """Bring the memory and the curve up to the present."""
    is_other_policy = memory.policy_at_unix_s != policy.set_at_unix_s
    memory = recalled(policy, memory, seen)
    if curve.uid != seen.uid:
        curve = Curve(uid=seen.uid)
    if seen.windows:
        curve = fitted(with_windows(curve, seen.windows, seen.unix_s))
    curve = with_change_cost(curve, seen.change_cost_s)
    if decision is None or decision.number != memory.open_decision or decision.uid != seen.uid:
        return _Case(
            policy=policy, curve=curve, memory=verdicts.forgotten(memory), seen=seen, open=None
        )
    case = _Case(policy=policy, curve=curve, memory=memory, seen=seen, open=decision)
    if is_other_policy:
        why = "Another policy was set before it was known."
        return _closed(case, verdicts.DecisionVerdict(outcome=DecisionOutcome.UNKNOWN, why=why))
    case = replace(case, memory=verdicts.followed(memory, decision, seen))
    # A dry run leaves the verdict to the processes that act, and goes on with the measurements.
    return replace(case, open=None) if policy.is_dry_run else case


def _refused(case: _Case, broken: Decision) -> _Case:
    """Record in the curve, and for the target rule in memory, that a size was not worth it."""
    memory = case.memory
    if broken.rule is Rule.TARGET:
        least = min(memory.target_refused or broken.to_nodes, broken.to_nodes)
        memory = replace(memory, target_refused=least)
    return replace(case, curve=refused(case.curve, broken.to_nodes), memory=memory)


def _with_another_job(
    case: _Case, broken: Decision, found: verdicts.DecisionVerdict
) -> tuple[_Case, verdicts.DecisionVerdict]:
    """Begin anew if a size that was measured before does not bring its earlier rate.

    Then no earlier measurement is valid, not even that of the previous size: to go back there would
    trust a number that was just shown to be wrong.
    """
    if found.outcome is not DecisionOutcome.TAKEN_BACK or broken.rule is not Rule.GOODPUT:
        return case, found
    was, got = broken.promised_steps_per_s, found.got_steps_per_s
    is_known = any(each.nodes == broken.to_nodes and each.is_measured for each in broken.candidates)
    if not is_known or not is_another_job(case.curve, broken.to_nodes, was, got):
        return case, found
    curve = with_another_job(case.curve, broken.to_nodes, got, case.memory.judged_steps)
    why = f"{found.why} That size was measured before, so the job is another one since."
    return replace(case, curve=fitted(curve)), replace(
        found, outcome=DecisionOutcome.UNKNOWN, why=why
    )


def _closed(case: _Case, found: verdicts.DecisionVerdict) -> _Case:
    assert case.open is not None
    done = verdicts.closed(case.open, found)
    return replace(case, memory=verdicts.forgotten(case.memory), open=None, closed=done)


def _cooling(policy: Policy, memory: Memory, seen: Observation) -> Hold | None:
    if memory.decided_s is None or seen.now_s - memory.decided_s >= policy.cooldown_s:
        return None
    ago_s = seen.now_s - memory.decided_s
    return HoldReason.COOLDOWN, (
        f"The last decision was {ago_s:.0f} s ago, and the cooldown is {policy.cooldown_s:g} s."
    )


def _awaited(case: _Case) -> Hold | None:
    policy, opened, seen = case.policy, case.open, case.seen
    if opened is None or not verdicts.is_awaited(policy, case.memory, opened, seen):
        return None
    return HoldReason.PROBE, (
        f"Decision {opened.number}, for {counted(opened.to_nodes)}, is still being measured."
    )


def _is_worth_it(case: _Case, broken: Decision, found: verdicts.DecisionVerdict) -> bool:
    """Return whether a size that did not keep its promise is still the best known size.

    The promise may have been too high, and the size may still be worth as much as those before it.
    """
    rule, is_growth = case.policy.goodput, broken.to_nodes > broken.from_nodes
    if (
        found.outcome is not DecisionOutcome.TAKEN_BACK
        or broken.rule is not Rule.GOODPUT
        or rule is None
    ):
        return False
    return is_growth and goodput.is_worth_as_much(rule, case.curve, broken, found.got_steps_per_s)


def _goes_on(broken: Decision, wish: Wish) -> bool:
    """Return whether the goodput rule continues in the direction of the broken decision."""
    if wish.rule is not Rule.GOODPUT or wish.nodes is None or wish.nodes == broken.to_nodes:
        return False
    return (wish.nodes > broken.to_nodes) == (broken.to_nodes > broken.from_nodes)


def _stays(broken: Decision, wish: Wish) -> bool:
    """Return whether a smaller size that was tried is right although it is worse than expected.

    To go back would pay for nodes that are not worth it.
    """
    is_smaller_try = broken.is_probe and broken.to_nodes < broken.from_nodes
    return is_smaller_try and wish.rule is Rule.GOODPUT and wish.nodes == broken.to_nodes


def _back(
    case: _Case, broken: Decision, found: verdicts.DecisionVerdict, wish: Wish
) -> SizeChange | None:
    """Return the change that takes a decision back; None if an input is missing.

    The new size is the one that the curve now prefers, if that is not beyond the size that broke
    its promise; otherwise it is the job's size before the decision, or the size that other rules
    ask for.
    """
    seen, is_growth = case.seen, broken.to_nodes > broken.from_nodes
    is_waiting = wish.hold is not None and wish.hold[0] is not HoldReason.NO_WINDOW
    if is_growth and (is_waiting or wish.blind is not None):
        return None
    nodes = _before(case, broken)
    if wish.nodes is not None:
        is_back = wish.nodes != broken.to_nodes and is_growth == (wish.nodes < broken.to_nodes)
        if is_back or wish.rule not in (broken.rule, Rule.LIMITS):
            nodes = wish.nodes
    nodes = stepped_size(case.policy, seen, nodes)
    asked = wish.proposal if wish.proposal is not None and wish.nodes == nodes else None
    known = broken.was_steps_per_s if nodes == broken.from_nodes else 0.0
    back = Proposal(
        rule=Rule.TAKE_BACK,
        nodes=nodes,
        why=f"Decision {broken.number} is taken back. {found.why}",
        was_steps_per_s=found.got_steps_per_s,
        promised_steps_per_s=asked.promised_steps_per_s if asked is not None else known,
        is_probe=asked is not None and asked.is_probe,
        candidates=asked.candidates if asked is not None else (),
    )
    return SizeChange(nodes=nodes, rule=Rule.TAKE_BACK, why=back.why, proposal=back)


def _before(case: _Case, broken: Decision) -> int:
    """Return the best size from the former one to the one before the size of `broken`."""
    rule = case.policy.goodput
    if rule is None or broken.to_nodes <= broken.from_nodes + 1:
        return broken.from_nodes
    there = replace(case.seen, nodes=broken.from_nodes)
    below = replace(case.policy, max_nodes=broken.to_nodes - 1)
    found = goodput.propose(rule, below, case.curve, there, Memory())
    return found.nodes if found.nodes is not None else broken.from_nodes


def _followed(case: _Case, wish: Wish, cooling: Hold | None) -> Decided:
    """Carry out a wish, as far as cooldown and `max_step` allow."""
    policy, seen = case.policy, case.seen
    if wish.nodes is None:
        return _held(case, wish.hold)
    nodes, why = stepped_size(policy, seen, wish.nodes), wish.why
    if nodes != wish.nodes:
        why += f" Of {wish.nodes} nodes {nodes} are taken now: max_step is {policy.max_step}."
    before = case.memory.wanted if policy.is_dry_run and case.memory.wanted else seen.wanted
    if nodes == before or _is_decided(case, nodes):
        return _held(case, wish.hold, lacks=wish.lacks)
    if cooling is not None and is_size_allowed(policy, seen):
        return _held(case, cooling, lacks=wish.lacks)
    change = SizeChange(
        nodes=nodes,
        rule=wish.rule,
        why=why,
        proposal=wish.proposal,
        missing=" ".join(each for each in (wish.lacks, missing_nodes(nodes, seen)) if each),
    )
    if case.open is not None:
        late = f"Decision {case.memory.decisions + 1} came before it was known."
        case = _closed(case, verdicts.DecisionVerdict(outcome=DecisionOutcome.UNKNOWN, why=late))
    return _done(case, change, wish.hold)


def _is_decided(case: _Case, nodes: int) -> bool:
    """Return whether the newest decision asked for that size, and its want may not be visible yet.

    An evaluation may come before the watch has shown the last evaluation's write.
    """
    opened, decided_s = case.open, case.memory.decided_s
    if opened is None or decided_s is None or opened.to_nodes != nodes:
        return False
    return case.seen.now_s - decided_s < WANT_UNSEEN_S


def _done(case: _Case, change: SizeChange, hold: Hold | None = None) -> Decided:
    """Record a change, and make it unless this is a dry run."""
    policy, seen, memory = case.policy, case.seen, case.memory
    number = memory.decisions + 1
    decision = decided(change, number, policy, case.curve, seen)
    memory = replace(memory, decisions=number, wanted=change.nodes, decided_s=seen.now_s)
    if not policy.is_dry_run:
        is_open = decision.outcome is DecisionOutcome.OPEN
        memory = replace(memory, open_decision=number if is_open else 0)
        resized = Resized(at_s=seen.now_s, delta=change.nodes - seen.wanted)
        memory = replace(memory, resized=(*memory.resized, resized))
    curve = case.curve
    if not policy.is_dry_run:
        curve = turned(curve, decision.from_nodes, decision.to_nodes)
    held = _held(replace(case, memory=memory, curve=curve), hold)
    return replace(
        held,
        decision=decision,
        memory=replace(held.memory, missing=change.missing),
        wanted=None if policy.is_dry_run else change.nodes,
        missing=change.missing,
    )


def _held(case: _Case, hold: Hold | None, *, lacks: str = "") -> Decided:
    """Keep the size. The stored reason changes only when the reason itself changes."""
    word, detail = hold if hold is not None else ("", "")
    memory, seen = case.memory, case.seen
    since_s = memory.held_since_s if memory.held == word else seen.now_s
    sentences = {proposal.rule.value: proposal.why for proposal in case.proposals}
    stands = missing_nodes(seen.wanted, seen) if memory.wanted == seen.wanted else ""
    missing = " ".join(each for each in (lacks, stands) if each)
    memory = replace(
        memory,
        held=str(word),
        held_since_s=since_s,
        held_detail=detail,
        missing=missing,
        sentences=sentences,
    )
    return Decided(
        memory=memory,
        curve=case.curve,
        closed=case.closed,
        held=str(word),
        held_detail=detail,
        missing=missing,
        proposals=case.proposals,
    )

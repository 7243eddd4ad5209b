"""Makes one wish of the proposals of all rules.

The greatest size that target and goodput ask for is raised by a deadline and lowered by a budget;
an idle job has its least number of nodes. Without a rule that asks for a size, a job has its
largest size. If a metric is missing, the wish may grow and never shrink, whichever rule asks for
fewer nodes; if the price of the budget is missing, the wish does neither. When all steps of the
budget are made, the wish does not grow. Only a person's limits always apply.
"""

from dataclasses import dataclass, replace

from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.hold import Hold, counted, held_word, missing_input
from elasticd.autoscale.proposal import Proposal
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.policy import Policy

__all__ = ["Wish", "composed", "is_size_allowed", "missing_nodes", "size_limits", "stepped_size"]

SIZING = (Rule.TARGET, Rule.GOODPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The size that all rules together ask for."""

    nodes: int | None
    """A size within the limits; None if the size stays, since no rule that asks for a size can give
    one."""
    rule: Rule = Rule.LIMITS
    why: str = ""
    proposal: Proposal | None = None
    """The proposal of the rule that decided."""
    hold: Hold | None = None
    """The missing input, also if the wish grows without it."""
    blind: Hold | None = None
    """The missing metric because of which the job is not made smaller; None if all are present."""
    lacks: str = ""
    """The part of the rules' wishes that is above the limits, as a sentence."""


def size_limits(policy: Policy, seen: Observation) -> tuple[int, int]:
    """Return the least and the most nodes that job and policy allow together."""
    least = max(seen.min_nodes, min(policy.min_nodes or seen.min_nodes, seen.max_nodes))
    most = min(seen.max_nodes, policy.max_nodes or seen.max_nodes)
    return least, max(least, most)


def composed(policy: Policy, seen: Observation, proposals: tuple[Proposal, ...]) -> Wish:
    """Return the wish that these proposals result in; `seen` is the input of `with_gaps`."""
    blind = missing_input(policy, seen)
    wish = replace(_of_all_rules(policy, seen, proposals), blind=blind)
    if blind is None or wish.nodes is None or wish.rule is Rule.LIMITS:
        return wish
    if wish.nodes >= seen.wanted:
        return wish
    word, why = blind
    asked = f"{wish.rule} asks for {counted(wish.nodes)}"
    hold = word, f"{why} Until it is there again nothing makes the job smaller: {asked}."
    return replace(_within_limits(seen, *size_limits(policy, seen), hold), blind=blind)


def missing_nodes(nodes: int, seen: Observation) -> str:
    """Return a sentence about the nodes that a wish for `nodes` lacks; empty if it lacks none."""
    lacks = nodes - seen.available
    if lacks <= 0:
        return ""
    return f"{lacks} of {counted(nodes)} are missing: {seen.available} train or could join."


def is_size_allowed(policy: Policy, seen: Observation) -> bool:
    """Return whether the limits allow the present size; if not, nothing delays its change."""
    least, most = size_limits(policy, seen)
    return least <= seen.wanted <= most


def stepped_size(policy: Policy, seen: Observation, nodes: int) -> int:
    """Return the size in the direction of `nodes` that one change may reach from the present nodes.

    A wish is never reduced because nodes are lost or on their way: nobody asked for fewer nodes.
    The limits come before `max_step`.
    """
    least, most = size_limits(policy, seen)
    size = nodes = max(least, min(most, nodes))
    if policy.max_step > 0 and nodes >= seen.wanted:
        size = min(nodes, max(seen.wanted, seen.nodes + policy.max_step))
    elif policy.max_step > 0:
        size = max(nodes, min(seen.wanted, seen.nodes - policy.max_step))
    return max(least, min(most, size))


def _of_all_rules(policy: Policy, seen: Observation, proposals: tuple[Proposal, ...]) -> Wish:
    by_rule = {proposal.rule: proposal for proposal in proposals}
    least, most = size_limits(policy, seen)
    idle = by_rule.get(Rule.IDLE)
    if idle is not None and idle.nodes is not None:
        return _of(idle, max(least, min(most, idle.nodes)))
    hold = _hold(proposals, seen)
    found = _asked(by_rule, most)
    if found is None:
        return _within_limits(seen, least, most, hold)
    wish, nodes = found
    lowers = by_rule.get(Rule.BUDGET)
    if lowers is not None and lowers.nodes is None and nodes > seen.wanted:
        # Its input is missing, or all steps that it pays for are made.
        return _within_limits(seen, least, most, hold)
    if hold is not None and nodes < seen.wanted:
        # The proposal is not followed: the missing input might have asked for more.
        wish, nodes = None, seen.wanted
    if lowers is not None and lowers.nodes is not None and lowers.nodes < nodes:
        wish, nodes = lowers, lowers.nodes
    if wish is None:
        return _within_limits(seen, least, most, hold)
    lacks = ""
    if nodes > most:
        lacks = f"The rules ask for {counted(nodes)}, and at most {most} are allowed."
    return _of(wish, max(least, min(most, nodes)), hold, lacks)


def _asked(by_rule: dict[Rule, Proposal], most: int) -> tuple[Proposal | None, int] | None:
    """Return the proposal for most nodes, and its size; None if no rule can give a size."""
    sizing = [by_rule[rule] for rule in (*SIZING, Rule.DEADLINE) if rule in by_rule]
    asked = [(each.nodes, each) for each in sizing if each.nodes is not None]
    if asked:
        nodes, proposal = max(asked, key=lambda pair: (pair[0], pair[1].promised_steps_per_s))
        return proposal, nodes
    # No rule of the policy asks for a size: the job has its largest size.
    return None if sizing else (_largest(most), most)


def _largest(most: int) -> Proposal:
    why = f"No rule asks for a size, so the job has as many nodes as it may have: {most}."
    return Proposal(rule=Rule.LIMITS, nodes=most, why=why)


def _hold(proposals: tuple[Proposal, ...], seen: Observation) -> Hold | None:
    """Return the missing input, whether a rule proposes nothing without it or only more nodes."""
    lacking = [each for each in proposals if each.rule is not Rule.IDLE]
    for each in lacking:
        if each.held:
            return held_word(each.held), each.why
    for each in lacking:
        if not each.may_shrink:
            missing = (reading.why for reading in seen.readings.values() if reading.value is None)
            return held_word(next(missing, "")), each.why
    return None


def _within_limits(seen: Observation, least: int, most: int, hold: Hold | None) -> Wish:
    """Return the wish to keep the size, unless policy or job do not allow this size."""
    if least <= seen.wanted <= most:
        return Wish(nodes=None, hold=hold)
    nodes = max(least, min(most, seen.wanted))
    why = f"{counted(seen.wanted)} are wanted, and {least} to {most} are allowed."
    return Wish(nodes=nodes, why=why, hold=hold)


def _of(proposal: Proposal, nodes: int, hold: Hold | None = None, lacks: str = "") -> Wish:
    return Wish(
        nodes=nodes, rule=proposal.rule, why=proposal.why, proposal=proposal, hold=hold, lacks=lacks
    )

"""Asks each rule of a policy for its proposal."""

from dataclasses import replace

from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.hold import Hold, counted
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules import behavior, budget, deadline, goodput, idle, target
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import GoodputRule, Policy, TargetRule

__all__ = ["proposals"]


def proposals(
    policy: Policy,
    curve: Curve,
    seen: Observation,
    memory: Memory,
    *,
    unmeasured: Hold | None,
    awaited: Hold | None,
) -> tuple[Memory, tuple[Proposal, ...]]:
    """Return the proposal of each rule of the policy, and the memory with the target's proposal.

    While `unmeasured` is given, the rules that need measurements propose nothing. While `awaited`
    is given, the rules that would choose another size before the verdict on the last one propose
    nothing. A budget only limits the other proposals, so `awaited` does not concern it.
    """
    proposed = []
    if policy.target is not None:
        if unmeasured is not None:
            proposed.append(_silent(Rule.TARGET, unmeasured))
        else:
            memory, proposal = _target(policy.target, curve, seen, memory)
            proposed.append(proposal)
    silence = unmeasured or awaited
    if policy.goodput is not None:
        proposed.append(
            _silent(Rule.GOODPUT, silence)
            if silence is not None
            else _goodput(policy.goodput, policy, curve, seen, memory)
        )
    if policy.deadline is not None:
        proposed.append(
            _silent(Rule.DEADLINE, silence)
            if silence is not None
            else deadline.propose(policy.deadline, policy, curve, seen, memory)
        )
    if policy.budget is not None:
        proposed.append(
            _silent(Rule.BUDGET, unmeasured)
            if unmeasured is not None
            else budget.propose(policy.budget, policy, curve, seen, memory)
        )
    if policy.idle is not None:
        memory = idle.remembered(policy.idle, policy, seen, memory)
        proposed.append(idle.propose(policy.idle, policy, curve, seen, memory))
    return memory, tuple(proposed)


def _target(
    rule: TargetRule, curve: Curve, seen: Observation, memory: Memory
) -> tuple[Memory, Proposal]:
    proposal = target.propose(rule, seen, memory)
    if proposal.nodes is None:
        return memory, proposal
    least = memory.target_refused
    # A size nearer to it than to the present size does not count as another size: noise may ask for
    # it.
    is_near = seen.wanted < least and 2 * proposal.nodes > seen.wanted + least
    if is_near and least in curve.refused:
        tried = f"{least} were tried, and brought next to nothing: {counted(seen.wanted)} stay."
        proposal = replace(proposal, nodes=seen.wanted, why=f"{proposal.why} {tried}")
    assert proposal.nodes is not None
    memory = behavior.with_proposed(rule, seen, memory, proposal.nodes)
    found = behavior.stabilization(rule, seen, memory, proposal.nodes)
    why = f"{proposal.why} {found.why}".strip()
    return memory, replace(proposal, nodes=found.nodes, why=why)


def _goodput(
    rule: GoodputRule, policy: Policy, curve: Curve, seen: Observation, memory: Memory
) -> Proposal:
    """Return the best of the sizes for which there are nodes, or a larger one beyond all of them.

    A wish whose nodes are missing must not keep a job at a size that is worse than a smaller one.
    """
    there = max(1, seen.min_nodes, seen.nodes, seen.available)
    found = goodput.propose(
        rule, policy, curve, replace(seen, max_nodes=min(seen.max_nodes, there)), memory
    )
    if found.nodes is None or found.nodes < there or there >= seen.max_nodes:
        return found
    if seen.wanted > there:
        # Noise must not change a wish while the change would have no effect.
        return replace(found, nodes=min(seen.wanted, seen.max_nodes))
    beyond = goodput.propose(rule, policy, curve, seen, memory)
    return beyond if beyond.nodes is not None and beyond.nodes > there else found


def _silent(rule: Rule, hold: Hold) -> Proposal:
    word, why = hold
    return Proposal(rule=rule, nodes=None, why=why, held=word, may_shrink=False)

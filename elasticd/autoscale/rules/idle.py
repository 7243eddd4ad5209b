"""The idle rule: the least number of nodes while the job waits for its data.

When there is work again, the job returns at once to its earlier size. For a job that waited for its
data the rule computes whether it would wait again: if the data arrive at a fixed rate, fewer nodes
wait less, and all nodes would wait as before. If m nodes wait for a part d of their time, N nodes
would wait for 1 - (1-d) x m/N of theirs; there is work for N only if this is below the rule's
share.

A pause is not idle time. Ranks leave a world after a step that they agree on, and in a pause (an
evaluation, which may need all of them) no step ends. A wish for fewer nodes would release no node
during the pause, and would remove the nodes when there is work again. Idle time neither begins nor
ends with a pause.
"""

from dataclasses import replace

from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.explain.quantity import counted, percent, span
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.size_range import size_range
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import IdleRule, Policy

__all__ = ["propose", "remembered"]

NO_WAIT_SHARE = 0.05
"""Below this part of its time a job does not wait for its data, even with very few nodes."""


def remembered(rule: IdleRule, policy: Policy, seen: Observation, memory: Memory) -> Memory:
    """Return the memory with the begin of the job's idle time, and the job's size before it.

    Each evaluation calls this before `propose`. The size is taken when the rule speaks for the
    first time: what other rules made of it until then is not undone.
    """
    if not seen.is_running or seen.nodes <= 0 or seen.is_paused:
        return memory  # No rank waits for data between two worlds, or in a pause.
    if _is_idle(rule, seen, memory):
        since_s = seen.now_s if memory.idle_since_s is None else memory.idle_since_s
        before = memory.idle_from_nodes
        if before <= 0 and seen.now_s - since_s >= rule.after_s:
            before = seen.wanted or seen.nodes
        return replace(memory, idle_since_s=since_s, idle_from_nodes=before)
    # A size above the limits of now cannot come back.
    _, high = size_range(policy, seen)
    is_back = seen.wanted >= min(high, memory.idle_from_nodes)
    return replace(
        memory, idle_since_s=None, idle_from_nodes=0 if is_back else memory.idle_from_nodes
    )


def propose(
    rule: IdleRule, policy: Policy, curve: Curve, seen: Observation, memory: Memory
) -> Proposal:
    """Return MIN for an idle job, the earlier size for a job that is not idle any more, or no size.

    `memory` is the result of `remembered` in this evaluation.
    """
    del curve  # Not needed: idle nodes make no steps, at any size.
    if seen.nodes <= 0:
        why = "No world trains, so nothing is idle."
        return Proposal(rule=Rule.IDLE, nodes=None, why=why, held=HoldReason.NOT_RUNNING)
    low, high = size_range(policy, seen)
    if seen.is_paused and (memory.idle_since_s is None or seen.wanted > low):
        why = "The job is paused: no node can be given back before its next step."
        return Proposal(rule=Rule.IDLE, nodes=None, why=why)
    before = min(high, max(low, memory.idle_from_nodes))
    if memory.idle_since_s is None:
        if memory.idle_from_nodes <= 0:
            return Proposal(rule=Rule.IDLE, nodes=None, why=_why_busy(seen))
        why = f"{_why_busy(seen)[:-1]}: back to the {counted(before, 'node')} of before."
        return Proposal(rule=Rule.IDLE, nodes=before, why=why)
    since_s = seen.now_s - memory.idle_since_s
    what = f"waits for its data for {percent(seen.data_share)} of its time"
    if since_s < rule.after_s:
        why = f"The job {what} since {span(since_s)}: after {span(rule.after_s)} it is idle."
        return Proposal(rule=Rule.IDLE, nodes=None, why=why)
    why = (
        f"The job {what} since {span(since_s)}: it keeps {counted(low, 'node')}, and has the "
        f"{before} of before again when there is work."
    )
    return Proposal(rule=Rule.IDLE, nodes=low, why=why)


def _is_idle(rule: IdleRule, seen: Observation, memory: Memory) -> bool:
    if seen.data_share >= rule.data_share:
        return True
    if seen.nodes >= memory.idle_from_nodes or memory.idle_since_s is None:
        return False
    if seen.data_share < NO_WAIT_SHARE:
        return False
    busy_share = (1.0 - seen.data_share) * seen.nodes / memory.idle_from_nodes
    return 1.0 - busy_share >= rule.data_share


def _why_busy(seen: Observation) -> str:
    return f"The job works: it waits for its data for {percent(seen.data_share)} of its time."

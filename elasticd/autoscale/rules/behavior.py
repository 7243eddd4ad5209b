"""Limits how soon and how fast a proposal of the target rule is followed: the HPA's `behavior`.

There are two limits, in this order, both with numbers for each direction:

* Stabilization: a job grows no further than the least size that was proposed within the window,
  and shrinks no further than the largest. A peak shorter than the window changes nothing.
* Rates: within a period the job changes by so many nodes, or so many percent, at most. Of several
  rates the one that allows most counts (`max`), or least (`min`); `disabled` forbids the direction.

The memory has the proposals before both limits, and the changes that were made.
"""

import math
from dataclasses import dataclass, replace

from elasticd.autoscale.evaluation_input import Observation
from elasticd.records.autoscale.memory import Memory, Proposed, Resized
from elasticd.records.autoscale.policy import Behavior, Rate, RateUnit, Select, TargetRule

__all__ = [
    "Stabilized",
    "rates_reach_s",
    "stabilization",
    "stabilized",
    "windows_reach_s",
    "with_proposed",
]


NODES_LIMIT = 2**31 - 1
"""The size of a direction without a limit; the HPA's sizes are 32-bit integers too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stabilized:
    """The part of a proposal that may be followed now."""

    nodes: int
    why: str
    """The limit that reduced the change, as a sentence; empty if none did."""


def stabilized(rule: TargetRule, seen: Observation, memory: Memory, nodes: int) -> int:
    """Return the size that may be followed now, as `stabilization` computes it."""
    return stabilization(rule, seen, memory, nodes).nodes


def stabilization(rule: TargetRule, seen: Observation, memory: Memory, nodes: int) -> Stabilized:
    """Return how far a proposal may be followed now, and the limit that reduced the change.

    The ranges of the policy and of the job are not applied here.

    Args:
        rule: the rule with the windows and rates.
        seen: the input with the wanted size and the time.
        memory: the memory after `with_proposed`, which contains the size at the first proposal.
        nodes: the size that `target.propose` proposed.
    """
    held = _in_windows(rule, seen, memory, nodes)
    allowed = _in_rates(rule, seen, memory, held)
    if allowed != held:
        limit = "no change in that direction is allowed"
        behavior = rule.up if held > seen.wanted else rule.down
        if behavior.select is not Select.DISABLED:
            limit = f"the rates let it go to {allowed} now"
        return Stabilized(nodes=allowed, why=f"It asks for {_counted(held)}, and {limit}.")
    if held != nodes:
        is_up = nodes > seen.wanted
        window_s = (rule.up if is_up else rule.down).stabilization_s
        brake = "no more than" if is_up else "as many as"
        why = (
            f"It asks for {_counted(nodes)}, and {brake} {held} were asked for within the last "
            f"{window_s:g} s."
        )
        return Stabilized(nodes=held, why=why)
    return Stabilized(nodes=held, why="")


def with_proposed(rule: TargetRule, seen: Observation, memory: Memory, nodes: int) -> Memory:
    """Return the memory with this proposal, and without those that cannot have an effect any more.

    At the first proposal the present size is added too, as if it had been proposed: a job that has
    just begun is not made smaller before one window is over.
    """
    before = memory.proposed or (Proposed(at_s=seen.now_s, nodes=seen.wanted),)
    reach_s = windows_reach_s(rule)
    recent = [each for each in before if seen.now_s - each.at_s < reach_s]
    # A proposal has an effect only while it is above, or below, all later ones, since the windows
    # use the largest and the least. So the memory is limited by the number of sizes, and not by
    # time.
    kept = [Proposed(at_s=seen.now_s, nodes=nodes)]
    most = least = nodes
    for each in reversed(recent):
        if each.nodes > most or each.nodes < least:
            kept.append(each)
            most, least = max(most, each.nodes), min(least, each.nodes)
    return replace(memory, proposed=tuple(reversed(kept)))


def windows_reach_s(rule: TargetRule) -> float:
    """Return how far back the stabilization windows look, in seconds."""
    return max(rule.up.stabilization_s, rule.down.stabilization_s)


def rates_reach_s(rule: TargetRule) -> float:
    """Return how far back the rates look, in seconds: older changes need not be kept."""
    periods = (rate.period_s for behavior in (rule.up, rule.down) for rate in behavior.rates)
    return max(periods, default=0.0)


def _in_windows(rule: TargetRule, seen: Observation, memory: Memory, nodes: int) -> int:
    least = most = nodes
    for each in memory.proposed:
        age_s = seen.now_s - each.at_s
        if age_s < rule.up.stabilization_s:
            least = min(least, each.nodes)
        if age_s < rule.down.stabilization_s:
            most = max(most, each.nodes)
    return min(max(seen.wanted, least), most)


def _in_rates(rule: TargetRule, seen: Observation, memory: Memory, nodes: int) -> int:
    if nodes > seen.wanted:
        # The result is never below the present size, which may be larger than the rates allow.
        return min(nodes, max(seen.wanted, _limit(rule.up, seen, memory, is_up=True)))
    if nodes < seen.wanted:
        return max(nodes, min(seen.wanted, _limit(rule.down, seen, memory, is_up=False)))
    return nodes


def _limit(behavior: Behavior, seen: Observation, memory: Memory, *, is_up: bool) -> int:
    """Return the size that one direction may reach now; without rates there is no limit."""
    if behavior.select is Select.DISABLED:
        return seen.wanted
    limits = [
        _reached(rate, _size_before(rate, seen, memory.resized), is_up=is_up)
        for rate in behavior.rates
    ]
    if not limits:
        return NODES_LIMIT if is_up else 0
    # The largest change: the highest limit on the way up, the lowest on the way down.
    takes_highest = is_up == (behavior.select is Select.MAX)
    return max(limits) if takes_highest else min(limits)


def _size_before(rate: Rate, seen: Observation, resized: tuple[Resized, ...]) -> int:
    """Return the job's size at the beginning of the period, from its changes since then."""
    within = (each.delta for each in resized if seen.now_s - each.at_s < rate.period_s)
    return seen.wanted - sum(within)


def _reached(rate: Rate, start: int, *, is_up: bool) -> int:
    if rate.unit is RateUnit.NODES:
        return math.ceil(start + rate.amount) if is_up else math.floor(start - rate.amount)
    # The multiplication comes first, so that 10 % of 10 nodes is one node.
    size = start * (100.0 + (rate.amount if is_up else -rate.amount)) / 100.0
    # A percentage near the end of floats has an infinite product.
    size = max(-NODES_LIMIT, min(NODES_LIMIT, size))
    return math.ceil(size) if is_up else int(size)


def _counted(nodes: int) -> str:
    return f"{nodes} node" + ("" if nodes == 1 else "s")

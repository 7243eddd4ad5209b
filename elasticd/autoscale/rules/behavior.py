"""How soon and how fast a proposal of the target rule is followed: the HPA's `behavior`.

Two brakes, in this order, both with numbers for each direction:

* Stabilization: a job grows no further than the least size that was proposed within the window,
  and shrinks no further than the largest. A peak shorter than the window changes nothing.
* Rates: within a period the job changes by so many nodes, or so many percent, at most. Of several
  rates the one that allows most counts (`max`), or least (`min`); `disabled` forbids the direction.

What is remembered are the proposals before both brakes, and the changes that were made.
"""

import math
from dataclasses import dataclass, replace

from elasticd.autoscale.evaluation_input import Seen
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stabilized:
    """The part of a proposal that may be followed now."""

    nodes: int
    why: str
    """What held it back, as a sentence; empty if nothing did."""


def stabilized(rule: TargetRule, seen: Seen, memory: Memory, nodes: int) -> int:
    """Return the size that may be followed now; see `stabilization`."""
    return stabilization(rule, seen, memory, nodes).nodes


def stabilization(rule: TargetRule, seen: Seen, memory: Memory, nodes: int) -> Stabilized:
    """Return how far a proposal may be followed now, and what held it back.

    Limits of the policy and of the job are not applied here.

    Args:
        rule: gives windows and rates.
        seen: the size that is wanted now, and the time.
        memory: after `with_proposed`, so that the first proposal finds the size it began with.
        nodes: what `target.propose` proposed.
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


def with_proposed(rule: TargetRule, seen: Seen, memory: Memory, nodes: int) -> Memory:
    """Return the memory with this proposal in it, and without those that cannot matter any more.

    At the first proposal the present size is added too, as if it had been proposed: a job that has
    just begun is not made smaller before one window is over.
    """
    before = memory.proposed or (Proposed(at_s=seen.now_s, nodes=seen.wanted),)
    reach_s = windows_reach_s(rule)
    recent = [each for each in before if seen.now_s - each.at_s < reach_s]
    # A proposal matters only while it is above, or below, all that came after it: the windows ask
    # for the most and the least. So the memory is bounded by the sizes, and not by the time.
    kept = [Proposed(at_s=seen.now_s, nodes=nodes)]
    most = least = nodes
    for each in reversed(recent):
        if each.nodes > most or each.nodes < least:
            kept.append(each)
            most, least = max(most, each.nodes), min(least, each.nodes)
    return replace(memory, proposed=tuple(reversed(kept)))


def windows_reach_s(rule: TargetRule) -> float:
    """Return how far back the stabilization windows look."""
    return max(rule.up.stabilization_s, rule.down.stabilization_s)


def rates_reach_s(rule: TargetRule) -> float:
    """Return how far back the rates look: changes older than that need not be remembered."""
    periods = (rate.period_s for behavior in (rule.up, rule.down) for rate in behavior.rates)
    return max(periods, default=0.0)


def _in_windows(rule: TargetRule, seen: Seen, memory: Memory, nodes: int) -> int:
    least = most = nodes
    for each in memory.proposed:
        age_s = seen.now_s - each.at_s
        if age_s < rule.up.stabilization_s:
            least = min(least, each.nodes)
        if age_s < rule.down.stabilization_s:
            most = max(most, each.nodes)
    return min(max(seen.wanted, least), most)


def _in_rates(rule: TargetRule, seen: Seen, memory: Memory, nodes: int) -> int:
    if nodes > seen.wanted:
        # Never below the present size: it may have been made in fewer steps than the rates allow.
        return min(nodes, max(seen.wanted, _limit(rule.up, seen, memory, is_up=True)))
    if nodes < seen.wanted:
        return max(nodes, min(seen.wanted, _limit(rule.down, seen, memory, is_up=False)))
    return nodes


def _limit(behavior: Behavior, seen: Seen, memory: Memory, *, is_up: bool) -> int:
    """Return how far one direction may go now; without rates there is no limit."""
    if behavior.select is Select.DISABLED:
        return seen.wanted
    limits = [
        _reached(rate, _size_before(rate, seen, memory.resized), is_up=is_up)
        for rate in behavior.rates
    ]
    if not limits:
        return 2**31 - 1 if is_up else 0
    # The largest change: the highest limit on the way up, the lowest on the way down.
    takes_highest = is_up == (behavior.select is Select.MAX)
    return max(limits) if takes_highest else min(limits)


def _size_before(rate: Rate, seen: Seen, resized: tuple[Resized, ...]) -> int:
    """Return the size that the job had when the period began, by its changes since."""
    within = (each.delta for each in resized if seen.now_s - each.at_s < rate.period_s)
    return seen.wanted - sum(within)


def _reached(rate: Rate, start: int, *, is_up: bool) -> int:
    if rate.unit is RateUnit.NODES:
        return math.ceil(start + rate.amount) if is_up else math.floor(start - rate.amount)
    # Multiplied before it is divided, so that 10 % of 10 nodes is one node.
    if is_up:
        return math.ceil(start * (100.0 + rate.amount) / 100.0)
    return int(start * (100.0 - rate.amount) / 100.0)


def _counted(nodes: int) -> str:
    return f"{nodes} node" + ("" if nodes == 1 else "s")

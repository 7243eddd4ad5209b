"""Brings the memory of an autoscaler up to the present evaluation.

The memory is bounded: it keeps the changes within the longest period of a rate, and the proposals
that the stabilization windows still need.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.autoscale.rules.behavior import rates_reach_s
from elasticd.autoscale.rules.query import reach_s
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory, Resized
from elasticd.records.autoscale.policy import PRICE, Policy

__all__ = ["RESIZED_LIMIT", "recalled", "with_gaps"]

RESIZED_LIMIT = 256
"""The number of the newest changes that are kept; a cooldown reduces this number."""


def recalled(policy: Policy, memory: Memory, seen: Observation) -> Memory:
    """Return the present memory, for this job and this policy, without entries that are too old.

    Another policy starts with an empty memory, except for the number of the newest decision and the
    changes that cooldown and rates need. Another job of the same name starts with an empty memory.
    """
    if memory.uid != seen.uid:
        memory = Memory(uid=seen.uid, policy_at_unix_s=policy.set_at_unix_s)
    if memory.policy_at_unix_s != policy.set_at_unix_s:
        memory = Memory(
            uid=seen.uid,
            decisions=memory.decisions,
            open_decision=memory.open_decision,
            resized=memory.resized,
            decided_s=memory.decided_s,
            generation=memory.generation,
            generation_since_s=memory.generation_since_s,
            policy_at_unix_s=policy.set_at_unix_s,
            unknown=memory.unknown,
        )
    if memory.generation != seen.generation:
        memory = replace(memory, generation=seen.generation, generation_since_s=seen.now_s)
    return replace(
        memory,
        now_s=seen.now_s,
        at_unix_s=seen.unix_s,
        is_dry_run=policy.is_dry_run,
        resized=_resized(policy, memory, seen.now_s),
        whole_since_s=_whole_since_s(policy, memory, seen),
    )


def with_gaps(policy: Policy, memory: Memory, seen: Observation) -> Observation:
    """Return the input without the metrics that were missing within the last window.

    After an outage, or after a restart of Prometheus, an average covers too little time: it covers
    the policy's window, or the range of the query itself, if that is longer. A query also does not
    count if its own range is longer than this generation. `memory` is the present memory
    (`recalled`).
    """
    readings = dict(seen.readings)
    metrics = policy.target.metrics if policy.target is not None else ()
    backs_s = {metric.name: reach_s(metric.query, policy.window_s) for metric in metrics}
    for name, since_s in memory.whole_since_s.items():
        there_s, whole_s = seen.now_s - since_s, max(policy.window_s, backs_s.get(name, 0.0))
        if there_s < whole_s:
            detail = f"it has been there for {there_s:.0f} s of a window of {whole_s:g} s"
            readings[name] = QueryReading(value=None, why=HoldReason.GAP, detail=detail)
    for name, detail in _of_before(policy, memory, seen):
        if name in readings and readings[name].value is not None:
            readings[name] = QueryReading(value=None, why=HoldReason.GAP, detail=detail)
    return replace(seen, readings=readings)


def _of_before(policy: Policy, memory: Memory, seen: Observation) -> Iterator[tuple[str, str]]:
    """Yield the metrics whose range begins before this generation, each with a sentence.

    Such a metric covers another size too. If the job itself is younger than the range, a rate is
    too low, since Prometheus divides by the whole range.
    """
    there_s = seen.now_s - memory.generation_since_s
    for metric in policy.target.metrics if policy.target is not None else ():
        back_s = reach_s(metric.query, policy.window_s)
        if back_s > policy.window_s and there_s < back_s:
            back = f"its query looks back {back_s:.0f} s"
            yield metric.name, f"{back}, and generation {seen.generation} is {there_s:.0f} s old"


def _resized(policy: Policy, memory: Memory, now_s: float) -> tuple[Resized, ...]:
    rates_s = rates_reach_s(policy.target) if policy.target is not None else 0.0
    reach_s = max(policy.cooldown_s, rates_s)
    return tuple(each for each in memory.resized if now_s - each.at_s < reach_s)[-RESIZED_LIMIT:]


def _whole_since_s(policy: Policy, memory: Memory, seen: Observation) -> dict[str, float]:
    metrics = policy.target.metrics if policy.target is not None else ()
    ages_s = {metric.name: metric.max_age_s for metric in metrics}
    if policy.budget is not None and policy.budget.price_query:
        ages_s[PRICE] = math.inf  # The price's source has checked its age.
    found = {}
    for name, max_age_s in ages_s.items():
        reading = seen.readings.get(name)
        if reading is None or reading.value is None or reading.age_s > max_age_s:
            continue
        if math.isfinite(reading.value) and reading.value >= 0:
            found[name] = memory.whole_since_s.get(name, seen.now_s)
    return found

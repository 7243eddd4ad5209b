"""The deadline rule: the smallest size that makes all steps by a given time.

A size suffices if its end is before the deadline with its error added (one standard deviation of
the measurement or of the fit); this is also true of the present size. If no size surely suffices,
the rule takes the smallest that probably suffices; if none does, the size that ends first. A
smaller size must keep `SPARE_SHARE` of the time in reserve, so that noise at the limit does not
make the job alternately smaller and larger.

The wall clock of the deciding process is compared with a time that a person wrote: this is the one
place where another host's clock matters.
"""

from elasticd.autoscale.curve.estimate import error_share
from elasticd.autoscale.evaluation_input import Observation
from elasticd.autoscale.explain.quantity import counted, span
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.remaining_run import Remaining, candidates_near, held, remaining
from elasticd.autoscale.rules.size_range import size_range
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import DeadlineRule, Policy

__all__ = ["propose"]

SPARE_SHARE = 0.05


def propose(
    rule: DeadlineRule, policy: Policy, curve: Curve, seen: Observation, memory: Memory
) -> Proposal:
    """Return the smallest size that ends in time, with its end and error, or else the fastest."""
    del memory  # Not needed: the remaining steps and the measured sizes suffice.
    nothing = held(Rule.DEADLINE, rule.steps, curve, seen)
    if nothing is not None:
        return nothing
    low, high = size_range(policy, seen)
    left_s = rule.at_unix_s - seen.unix_s
    sizes = remaining(rule.steps, policy, curve, seen)
    now = next(each for each in sizes if each.nodes == seen.nodes)
    allowed = [each for each in sizes if low <= each.nodes <= high]
    chosen = _smallest(allowed, curve, now, left_s)
    if chosen is not None:
        why = _why(chosen, rule, seen, left_s)
    else:
        chosen = _soonest(allowed, now)
        why = _why_late(chosen, rule, seen, left_s)
    return Proposal(
        rule=Rule.DEADLINE,
        nodes=min(high, max(low, chosen.nodes)),
        why=why,
        is_probe=not chosen.is_measured,
        was_steps_per_s=now.steps_per_s,
        promised_steps_per_s=chosen.steps_per_s,
        candidates=candidates_near(
            allowed, chosen, lambda size: f"ends in {_end(size)}, {_in_time(size, left_s)}"
        ),
    )


def _smallest(
    sizes: list[Remaining], curve: Curve, now: Remaining, left_s: float
) -> Remaining | None:
    """Return the smallest size that surely suffices, or else probably; None if none does."""
    noise = error_share(curve, now.nodes)
    # A size that is larger and not faster does not help, however certain its end is.
    sizes = [size for size in sizes if size.nodes <= now.nodes or size.seconds < now.seconds]
    for size in sizes:
        # Before the job shrinks, the noise of the present size is added: it may make all sizes look
        # faster.
        spare = SPARE_SHARE + noise if size.nodes < now.nodes else 0.0
        if size.surely_s <= left_s * (1.0 - spare):
            return size
    larger = (size for size in sizes if size.nodes >= now.nodes)
    return next((size for size in larger if size.seconds <= left_s), None)


def _soonest(sizes: list[Remaining], now: Remaining) -> Remaining:
    """Return the size that ends first; any but the present size must be faster by its error."""
    best = min(sizes, key=lambda size: (size.seconds, size.nodes), default=now)
    margin_s = best.error_s + now.error_s if best.is_measured else 0.0
    return best if best.seconds + margin_s < now.seconds else now


def _why(size: Remaining, rule: DeadlineRule, seen: Observation, left_s: float) -> str:
    return (
        f"{counted(size.nodes, 'node')} {_verb(size, 'make')} the {rule.steps - seen.step} steps "
        f"that are left in {_end(size)}, {_in_time(size, left_s)}: the smallest number that makes "
        "it."
    )


def _why_late(size: Remaining, rule: DeadlineRule, seen: Observation, left_s: float) -> str:
    when = f"in {span(left_s)}" if left_s > 0.0 else f"{span(-left_s)} ago"
    return (
        f"No size makes the {rule.steps - seen.step} steps that are left by the deadline {when}: "
        f"{counted(size.nodes, 'node')} {_verb(size, 'end')} soonest, in {_end(size)}, "
        f"{_in_time(size, left_s)}."
    )


def _verb(size: Remaining, verb: str) -> str:
    return f"{verb}s" if size.nodes == 1 else verb


def _end(size: Remaining) -> str:
    how = "" if size.is_measured else ", expected"
    return f"{span(size.seconds)} (± {span(size.error_s)}{how})"


def _in_time(size: Remaining, left_s: float) -> str:
    early_s = left_s - size.seconds
    if early_s >= 0.0:
        return f"{span(early_s)} before the deadline"
    return f"{span(-early_s)} after the deadline"

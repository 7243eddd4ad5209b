"""The goodput rule: as many nodes as pay for themselves, by the job's own measured steps.

A size is worth its steps in a second, less what the change to it costs, spread over the horizon;
and each node in it must be worth its price. Rough model: worth(m) = rate(m) / m ** s, where s is
`least_share`. It has its maximum exactly where the last node adds s of what a node adds on average:
d ln rate / d ln m = s. With s = 0 the throughput alone counts, with s = 1 that of a node. Between
two sizes, ln(rate(n) / rate(m)) / ln(n / m) is the mean of that share on the way.

The rule moves to the size of the greatest worth, if that is more than that of now. Each move goes
up on one function of the size, so moves cannot go in a circle while the curve stays as it is. In
doubt a job trains on more nodes: of sizes worth nearly the same the largest counts, and a smaller
one must be worth more by the possible noise on both sides. So a size that noise chose is not given
back by noise. That a larger size earns its change, (rate(m) - rate(n)) x horizon > rate(n) x cost,
follows from its greater worth.

Rejected: to compare the last node with the average one by the difference of two neighbours. At 30
nodes the last one adds 3 % at best, which is the noise of a window.

A size that was never measured is tried, at most twice as far as the largest measured one, or half
as far as the smallest. What is tried although the fit promises nothing is in `size_trial`.
"""

from collections.abc import Callable, Iterator

from elasticd.autoscale.curve.cost import change_cost_s
from elasticd.autoscale.curve.estimate import is_fit_right, measured_sizes, steps
from elasticd.autoscale.curve.spread import standard_errors
from elasticd.autoscale.evaluation_input import Seen
from elasticd.autoscale.explain.quantity import counted, span
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.goodput_text import (
    candidates_of,
    why,
    why_below,
    why_cliff,
    why_lower,
    why_not,
    why_telling,
    why_trial,
)
from elasticd.autoscale.rules.size_range import size_range
from elasticd.autoscale.rules.size_trial import (
    before_cliff,
    behind_cliff,
    below_start,
    far_side,
    further,
    lower,
    only_known,
    telling,
)
from elasticd.autoscale.rules.size_worth import ComparisonBasis, SizeWorth, size_worth
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import GoodputRule, Policy

__all__ = ["is_worth_as_much", "propose"]

TURN_SHARE = 0.05
"""How much more a size must be worth for a job that has already turned once: it turns again to
fewer nodes only for this gain in worth, and to more nodes that were never measured only for this
gain in steps."""
ALIKE_SHARE = 0.01
"""Sizes whose worth differs by less are worth the same; the largest of them trains soonest."""
KNOWN_SHARE = 0.03
"""A measured size counts before a smaller, unmeasured one that may be worth this much more."""


def propose(
    rule: GoodputRule, policy: Policy, curve: Curve, seen: Seen, memory: Memory
) -> Proposal:
    """Return the size that is worth most, or why there is nothing to go by."""
    held = _held(rule, curve, seen, memory)
    if held is not None:
        return held
    low, high = size_range(policy, seen)
    basis = _scene(rule, policy, curve, seen)
    sizes = [
        size_worth(basis, curve, step)
        for step in steps(curve, _within_reach(curve, low, high))
        if step.nodes != seen.nodes
    ]
    for wish, said in _wishes(basis, curve, low, high, sizes):
        if wish is not None and low <= wish.nodes <= high and _is_worth_a_turn(curve, basis, wish):
            return _proposal(basis, wish, said(basis, wish), sizes)
    # It counts turns by itself: what a trial tells may be worth one, though it promises nothing.
    told = telling(basis, curve, low, high)
    if told is not None:
        return _proposal(basis, told, why_telling(basis, told), sizes)
    return Proposal(
        rule=Rule.GOODPUT,
        nodes=min(high, max(low, seen.nodes)),
        why=why_not(basis, sizes),
        was_steps_per_s=basis.now.per_s,
        promised_steps_per_s=basis.now.per_s,
    )


def is_worth_as_much(rule: GoodputRule, curve: Curve, tried: Decision, got_per_s: float) -> bool:
    """Return whether a larger size is worth what the one before it was, and all smaller ones.

    What its own noise may have taken from it, up to `KNOWN_SHARE`, does not count against it: in
    doubt the job trains on more nodes.
    """
    noise = min(KNOWN_SHARE, standard_errors(curve).get(tried.to_nodes, 0.0))
    alike = max(ALIKE_SHARE, noise)
    rates = {size.nodes: 1.0 / size.step_s for size in measured_sizes(curve)}
    rates[tried.from_nodes] = tried.was_steps_per_s
    worth = got_per_s / tried.to_nodes**rule.least_share
    return all(
        worth >= (1.0 - alike) * rate / nodes**rule.least_share
        for nodes, rate in rates.items()
        if nodes < tried.to_nodes
    )


def _wishes(
    basis: ComparisonBasis, curve: Curve, low: int, high: int, sizes: list[SizeWorth]
) -> Iterator[tuple[SizeWorth | None, Callable[[ComparisonBasis, SizeWorth], str]]]:
    """Return the sizes to go to in the order in which they count, each with its sentence."""
    yield lower(basis, curve, low, high), why_lower
    first = only_known(basis, curve, low, high)
    if first is not None and first.nodes < basis.now.nodes:
        yield first, why_trial
    yield behind_cliff(basis, curve, low, high), why_cliff
    best = _best(sizes, basis.now.nodes)
    if best is not None and (best.nodes < basis.now.nodes or curve.turns > 0):
        yield below_start(basis, curve, low, high), why_below
    yield best, why
    yield before_cliff(basis, curve, low, high), why_cliff
    yield further(basis, curve, high), why_cliff
    yield far_side(basis, curve, high), why_cliff
    yield first, why_trial
    yield below_start(basis, curve, low, high), why_below


def _is_worth_a_turn(curve: Curve, basis: ComparisonBasis, size: SizeWorth) -> bool:
    """Return whether a size is worth it that a job which turned before turns once more."""
    way = 1 if size.nodes > basis.now.nodes else -1
    if curve.turns == 0 or way == curve.way:
        return True
    if way < 0:
        return size.worth > 1.0 + TURN_SHARE
    # In doubt more nodes: a little more worth may be many more steps.
    return size.step.is_measured or size.step.per_s > basis.now.per_s * (1.0 + TURN_SHARE)


def _best(sizes: list[SizeWorth], now: int) -> SizeWorth | None:
    """Return the largest of the sizes that are worth the most, or nearly; None if none is better.

    A larger one is better than the present one if it is worth as much, within `ALIKE_SHARE`, as the
    best of all: where the worth is flat, the rate is not.
    """
    most = max((size.worth for size in sizes if not size.is_refused), default=0.0)
    least = max(1.0, most) * (1.0 - ALIKE_SHARE)
    better = [size for size in sizes if size.is_better]
    best = max((size.worth for size in better), default=0.0)
    alike = [size for size in better if size.worth >= best * (1.0 - ALIKE_SHARE)]
    alike += [
        size
        for size in sizes
        if size.nodes > now and size.worth >= least and size.gain_steps > 0.0
        if not size.is_refused
    ]
    found = max(alike, key=lambda size: size.nodes, default=None)
    if found is None or found.step.is_measured or found.nodes > now:
        return found
    # A smaller one that nobody has measured is not worth a try where a measured one is as good. It
    # need not be better than that of now for sure: what was never measured counts as exact.
    known = [size for size in sizes if size.step.is_measured and size.nodes > found.nodes]
    least = found.worth * (1.0 - KNOWN_SHARE)
    as_good = [size for size in known if size.worth >= least and not size.is_refused]
    return max(as_good, key=lambda size: size.worth, default=found)


def _held(rule: GoodputRule, curve: Curve, seen: Seen, memory: Memory) -> Proposal | None:
    if seen.nodes <= 0:
        return _nothing(HoldReason.NOT_RUNNING, "No world trains, so no step can be measured.")
    if seen.step <= 0:
        return _nothing(
            HoldReason.NO_STEPS, "The job has reported no steps, and goodput goes by them."
        )
    size = next((each for each in measured_sizes(curve) if each.nodes == seen.nodes), None)
    if size is None:
        return _nothing(
            HoldReason.NO_WINDOW,
            f"The steps of {counted(seen.nodes, 'node')} have not been measured for a whole window"
            " yet.",
        )
    since_s = seen.now_s - memory.resized[-1].at_s if memory.resized else rule.probe_s
    if size.windows == 1 and since_s < rule.probe_s:
        return _nothing(
            HoldReason.PROBE,
            f"{counted(seen.nodes, 'node')} are tried since {span(since_s)}, of"
            f" {span(rule.probe_s)}.",
        )
    return None


def _nothing(held: HoldReason, said: str) -> Proposal:
    return Proposal(rule=Rule.GOODPUT, nodes=None, why=said, held=held)


def _scene(rule: GoodputRule, policy: Policy, curve: Curve, seen: Seen) -> ComparisonBasis:
    now = steps(curve, (seen.nodes,))[0]
    cost_s, is_cost_seen = change_cost_s(curve, is_in_process=seen.is_in_process)
    horizon_s = rule.horizon_s
    # A job that will have ended by then earns nothing afterwards.
    total = next((each.steps for each in (policy.deadline, policy.budget) if each is not None), 0)
    if total > seen.step:
        horizon_s = min(horizon_s, (total - seen.step) * now.seconds)
    horizon_s = max(horizon_s, now.seconds)
    return ComparisonBasis(
        rule=rule,
        now=now,
        horizon_s=horizon_s,
        cost_s=cost_s,
        is_cost_seen=is_cost_seen,
        errors=standard_errors(curve),
    )


def _within_reach(curve: Curve, low: int, high: int) -> range:
    sizes = measured_sizes(curve)
    known = [size.nodes for size in sizes]
    # Below all that was measured the fit alone speaks: it must be right where it can be held
    # against something, which it always is at one or two sizes.
    least = min(known) // 2 if is_fit_right(curve, sizes) else min(known)
    return range(max(low, least), min(high, 2 * max(known)) + 1)


def _proposal(
    basis: ComparisonBasis, size: SizeWorth, said: str, sizes: list[SizeWorth]
) -> Proposal:
    return Proposal(
        rule=Rule.GOODPUT,
        nodes=size.nodes,
        why=said,
        is_probe=not size.step.is_measured,
        was_steps_per_s=basis.now.per_s,
        promised_steps_per_s=size.step.per_s,
        candidates=candidates_of(basis, sizes),
    )

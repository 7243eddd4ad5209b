"""The goodput rule: as many nodes as are worth their price, by the job's own measured steps.

The worth of a size is its steps per second, less the cost of the change, spread over the horizon;
and each of its nodes must be worth its price. Rough model: worth(m) = rate(m) / m ** s, where s is
`least_share`. It has its maximum exactly where the last node adds s of what a node adds on average:
d ln rate / d ln m = s. With s = 0 the throughput alone counts, with s = 1 that of a node. Between
two sizes, ln(rate(n) / rate(m)) / ln(n / m) is the mean of that share on the way.

The rule chooses the size of the greatest worth, if that is more than the present worth. Each move
increases one function of the size, so moves cannot form a circle while the curve does not change.
In doubt a job trains on more nodes: of sizes with nearly the same worth the rule chooses the
largest, and a smaller one must be worth more by the possible noise of both sizes. So noise does not
undo a move that noise caused. A greater worth implies that a larger size repays its change:
(rate(m) - rate(n)) x horizon > rate(n) x cost.

Rejected: to compare the last node with the average one by the difference of two neighbours. At 30
nodes the last node adds at most 3 %, which is the noise of a window.

A size without a measurement is tried if it is at most twice the largest measured size, and at least
half of the smallest. `size_trial` has the sizes that are tried although the fit promises nothing.
"""

from collections.abc import Callable, Iterator

from elasticd.autoscale.curve.cost import change_cost_s
from elasticd.autoscale.curve.estimate import is_fit_right, measured_sizes, steps
from elasticd.autoscale.curve.spread import standard_errors
from elasticd.autoscale.evaluation_input import Observation
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
"""The additional worth that a size needs for a job that has already turned once: the job turns
again to fewer nodes only for this gain in worth, and to more nodes without a measurement only for
this gain in steps."""
ALIKE_SHARE = 0.01
"""Sizes whose worth differs by less have the same worth; the largest of them trains fastest."""
KNOWN_SHARE = 0.03
"""A measured size is preferred to a smaller, unmeasured one that may be worth this much more."""


def propose(
    rule: GoodputRule, policy: Policy, curve: Curve, seen: Observation, memory: Memory
) -> Proposal:
    """Return the size with the greatest worth, or no size if there is no measurement."""
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
    for wish, explain in _wishes(basis, curve, low, high, sizes):
        if wish is not None and low <= wish.nodes <= high and _is_worth_a_turn(curve, basis, wish):
            return _proposal(basis, wish, explain(basis, wish), sizes)
    # `telling` counts turns itself: a trial's information may be worth a turn, though it promises
    # nothing.
    trial = telling(basis, curve, low, high)
    if trial is not None:
        return _proposal(basis, trial, why_telling(basis, trial), sizes)
    return Proposal(
        rule=Rule.GOODPUT,
        nodes=min(high, max(low, seen.nodes)),
        why=why_not(basis, sizes),
        was_steps_per_s=basis.now.per_s,
        promised_steps_per_s=basis.now.per_s,
    )


def is_worth_as_much(rule: GoodputRule, curve: Curve, tried: Decision, got_per_s: float) -> bool:
    """Return whether a larger size is worth as much as the one before it, and as all smaller ones.

    A loss that its own noise may have caused, up to `KNOWN_SHARE`, does not count against the size:
    in doubt the job trains on more nodes.
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
    """Yield the sizes to choose in order of preference, each with the function for its sentence."""
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
    """Return whether a size justifies one more turn of a job that has turned before."""
    way = 1 if size.nodes > basis.now.nodes else -1
    if curve.turns == 0 or way == curve.way:
        return True
    if way < 0:
        return size.worth > 1.0 + TURN_SHARE
    # In doubt more nodes: a little more worth may mean many more steps.
    return size.step.is_measured or size.step.per_s > basis.now.per_s * (1.0 + TURN_SHARE)


def _best(sizes: list[SizeWorth], now: int) -> SizeWorth | None:
    """Return the largest of the sizes with nearly the greatest worth; None if none is better.

    A larger size is better than the present one if it is worth as much, within `ALIKE_SHARE`, as
    the best of all: if the worth hardly differs, the rate still does.
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
    # A smaller size without a measurement is not worth a trial if a measured one is as good. That
    # one need not be certainly better than the present size: an unmeasured size counts as exact.
    known = [size for size in sizes if size.step.is_measured and size.nodes > found.nodes]
    least = found.worth * (1.0 - KNOWN_SHARE)
    as_good = [size for size in known if size.worth >= least and not size.is_refused]
    return max(as_good, key=lambda size: size.worth, default=found)


def _held(rule: GoodputRule, curve: Curve, seen: Observation, memory: Memory) -> Proposal | None:
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


def _nothing(held: HoldReason, sentence: str) -> Proposal:
    return Proposal(rule=Rule.GOODPUT, nodes=None, why=sentence, held=held)


def _scene(rule: GoodputRule, policy: Policy, curve: Curve, seen: Observation) -> ComparisonBasis:
    now = steps(curve, (seen.nodes,))[0]
    cost_s, is_cost_seen = change_cost_s(curve, is_in_process=seen.is_in_process)
    horizon_s = rule.horizon_s
    # A job that ends before the horizon gains nothing after its end.
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
    # Below all measured sizes only the fit gives a value: the fit must be right where it can be
    # compared with measurements. At one or two sizes it always is.
    least = min(known) // 2 if is_fit_right(curve, sizes) else min(known)
    return range(max(low, least), min(high, 2 * max(known)) + 1)


def _proposal(
    basis: ComparisonBasis, size: SizeWorth, sentence: str, sizes: list[SizeWorth]
) -> Proposal:
    return Proposal(
        rule=Rule.GOODPUT,
        nodes=size.nodes,
        why=sentence,
        is_probe=not size.step.is_measured,
        was_steps_per_s=basis.now.per_s,
        promised_steps_per_s=size.step.per_s,
        candidates=candidates_of(basis, sizes),
    )

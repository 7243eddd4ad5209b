"""The budget rule: the largest size whose cost to the end of the job stays within the budget.

The cost until now is included in the cost to the end, which is nodes x seconds of all steps that
are left. A budget in money uses the present price for both. Without a price the rule proposes
nothing, since a missing number must neither shrink the job, which harms it, nor grow it, which may
cost too much.

A size larger than the present one must stay within the budget with its error added; the present
size counts as measured. So noise at the limit makes the job smaller at most once.
"""

from elasticd.autoscale.curve.estimate import error_share
from elasticd.autoscale.evaluation_input import Observation, QueryReading
from elasticd.autoscale.explain.quantity import counted, number
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.remaining_run import Remaining, candidates_near, held, remaining
from elasticd.autoscale.rules.size_range import size_range
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import PRICE, BudgetRule, Policy

__all__ = ["propose"]

SPARE_SHARE = 0.02


def propose(
    rule: BudgetRule, policy: Policy, curve: Curve, seen: Observation, memory: Memory
) -> Proposal:
    """Return the largest size that the budget pays for to the end; the least size if none."""
    del memory  # Not needed: the remaining steps and the measured sizes suffice.
    nothing = held(Rule.BUDGET, rule.steps, curve, seen)
    if nothing is not None:
        return nothing
    price = 0.0
    if rule.node_hours <= 0.0:
        reading = seen.readings.get(PRICE, QueryReading(value=None, why=HoldReason.EMPTY))
        if reading.value is None:
            return _without_price(reading)
        price = reading.value
    low, high = size_range(policy, seen)
    if rule.node_hours <= 0.0 and price <= 0.0:
        why = f"A node costs nothing now: the budget of {number(rule.cost)} allows any size."
        return Proposal(rule=Rule.BUDGET, nodes=high, why=why)
    total = rule.node_hours if rule.node_hours > 0.0 else rule.cost / price
    money = _Money(price)
    left = total - seen.used_node_hours
    sizes = remaining(rule.steps, policy, curve, seen)
    allowed = [each for each in sizes if low <= each.nodes <= high]
    now = next(each for each in sizes if each.nodes == seen.nodes)
    noise = error_share(curve, seen.nodes)
    chosen = next(
        (each for each in reversed(allowed) if _is_paid(each, seen.nodes, left, noise)), None
    )
    if chosen is not None:
        why = (
            f"{counted(chosen.nodes, 'node')} {'needs' if chosen.nodes == 1 else 'need'} "
            f"{money.of(chosen.node_hours)} for the {rule.steps - seen.step} steps that are left, "
            f"within the {money.of(left)} that are left of {money.of(total)}: the largest number "
            "that does."
        )
    else:
        chosen = next(iter(allowed), now)
        over = chosen.node_hours - left
        why = (
            f"Even {counted(chosen.nodes, 'node')}, the least that is allowed, "
            f"{'needs' if chosen.nodes == 1 else 'need'} {money.of(chosen.node_hours)} for the "
            f"{rule.steps - seen.step} steps that are left, {money.of(over)} more than is left of "
            f"{money.of(total)}."
        )
    return Proposal(
        rule=Rule.BUDGET,
        nodes=min(high, max(low, chosen.nodes)),
        why=why,
        is_probe=not chosen.is_measured,
        was_steps_per_s=now.steps_per_s,
        candidates=candidates_near(
            allowed, chosen, lambda size: f"needs {money.of(size.node_hours)}"
        ),
    )


class _Money:
    """Formats node-hours, and their cost if there is a price."""

    def __init__(self, price: float) -> None:
        self._price = price

    def of(self, node_hours: float) -> str:
        if self._price > 0.0:
            return f"{number(node_hours * self._price)} in money ({number(node_hours)} node-hours)"
        return f"{number(node_hours)} node-hours"


def _is_paid(size: Remaining, nodes: int, left: float, noise: float) -> bool:
    if size.nodes > nodes:
        # The noise of the present size is added: it may have made all sizes look cheaper.
        return size.surely_node_hours * (1.0 + SPARE_SHARE + noise) <= left
    return size.node_hours <= left


def _without_price(reading: QueryReading) -> Proposal:
    detail = f" ({reading.detail})" if reading.detail else ""
    return Proposal(
        rule=Rule.BUDGET,
        nodes=None,
        why=f"The price is not known: {reading.why or HoldReason.EMPTY}{detail}.",
        held=reading.why or HoldReason.EMPTY,
        may_shrink=False,
    )

"""The budget rule: the largest size whose cost to the end of the job stays within the budget.

What was used counts with what is to come: nodes x seconds of all steps that are left. A budget in
money goes by the price of now, for both; without a price nothing is proposed, since to shrink on a
missing number harms the job, and to grow on one may cost what nobody has.

A larger size than that of now must stay within the budget with its error added; that of now counts
as it was measured. So noise at the edge makes the job smaller at most once.
"""

from elasticd.autoscale.curve.estimate import error_share
from elasticd.autoscale.evaluation_input import QueryReading, Seen
from elasticd.autoscale.explain.quantity import counted, number
from elasticd.autoscale.proposal import Proposal
from elasticd.autoscale.rules.size_range import size_range
from elasticd.autoscale.rules.whole_run import Remaining, candidates_near, held, remaining
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import PRICE, BudgetRule, Policy

__all__ = ["propose"]

SPARE_SHARE = 0.02


def propose(rule: BudgetRule, policy: Policy, curve: Curve, seen: Seen, memory: Memory) -> Proposal:
    """Return the largest size that the budget pays for to the end; the least if it pays
    for none.
    """
    del memory  # Nothing of it counts: what is left and what was measured say all.
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
    """Format node-hours, and what they cost if there is a price."""

    def __init__(self, price: float) -> None:
        self._price = price

    def of(self, node_hours: float) -> str:
        if self._price > 0.0:
            return f"{number(node_hours * self._price)} in money ({number(node_hours)} node-hours)"
        return f"{number(node_hours)} node-hours"


def _is_paid(size: Remaining, nodes: int, left: float, noise: float) -> bool:
    if size.nodes > nodes:
        # The noise of now counts as well: it may have made all sizes look cheaper.
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

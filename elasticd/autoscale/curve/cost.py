"""The cost of a change of size: the seconds in which the job makes no step."""

import math
from collections.abc import Iterable
from dataclasses import replace

from elasticd.records.autoscale.curve import Curve

__all__ = ["IN_PROCESS_COST_S", "RESTART_COST_S", "change_cost_s", "with_change_cost"]

IN_PROCESS_COST_S = 5.0
"""The cost in seconds that is assumed before the first change, if processes stay: about ten times
the cost of such a change on warm nodes, so that the first change of a job must be clearly worth
it."""
RESTART_COST_S = 120.0
"""The cost in seconds that is assumed before the first change, if scripts start again: imports,
model, checkpoint."""
CHANGES_ENOUGH = 10
"""The number of the newest changes in the mean: a checkpoint may grow, and a disk may become
slow."""


def with_change_cost(curve: Curve, costs_s: Iterable[float]) -> Curve:
    """Return the curve with these changes added to its cost; they are in seconds, oldest first.

    Numbers that are not a duration are ignored.
    """
    for cost_s in costs_s:
        if not math.isfinite(cost_s) or cost_s < 0.0:
            continue
        changes = curve.changes + 1
        share = 1.0 / min(changes, CHANGES_ENOUGH)
        mean_s = curve.change_cost_s + share * (cost_s - curve.change_cost_s)
        curve = replace(curve, change_cost_s=mean_s, changes=changes)
    return curve


def change_cost_s(curve: Curve, *, is_in_process: bool) -> tuple[float, bool]:
    """Return the seconds that a change of size takes, and whether a change was ever measured."""
    if curve.changes > 0:
        return curve.change_cost_s, True
    return (IN_PROCESS_COST_S if is_in_process else RESTART_COST_S), False

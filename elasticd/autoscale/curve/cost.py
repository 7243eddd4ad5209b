"""What a change of size costs: seconds in which the job makes no step."""

import math
from collections.abc import Iterable
from dataclasses import replace

from elasticd.records.autoscale.curve import Curve

__all__ = ["IN_PROCESS_COST_S", "RESTART_COST_S", "change_cost_s", "with_change_cost"]

IN_PROCESS_COST_S = 5.0
"""The cost in seconds that is assumed until one was seen, where processes stay: some ten times what
such a change takes on warm nodes, so that the first change of a job must be well worth it."""
RESTART_COST_S = 120.0
"""The cost in seconds that is assumed until one was seen, where scripts start anew: imports, model,
checkpoint."""
CHANGES_ENOUGH = 10
"""The mean counts about the last ten changes: a checkpoint grows, a disk gets slow."""


def with_change_cost(curve: Curve, costs_s: Iterable[float]) -> Curve:
    """Return the curve that knows of these changes as well, oldest first, in seconds.

    Numbers that are no duration are passed over.
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
    """Return the seconds that a change of size takes, and whether one was ever seen."""
    if curve.changes > 0:
        return curve.change_cost_s, True
    return (IN_PROCESS_COST_S if is_in_process else RESTART_COST_S), False

"""Sizes that are tried although the curve does not promise anything of them."""

import math

from elasticd.autoscale.curve.estimate import Step, measured_sizes, off_share, steps
from elasticd.autoscale.curve.size import spread_share
from elasticd.autoscale.rules.size_worth import Scene, SizeWorth, size_worth
from elasticd.records.autoscale.curve import Curve

__all__ = ["before_cliff", "only_known"]

TRIAL_SHARE = 0.1
"""Of the horizon that a trial may take when nothing speaks for the size but that it is unknown."""
CLIFF_SHARE = 0.1
"""A size is behind a cliff if it is slower than the fit by so much more than the size of now."""


def before_cliff(scene: Scene, curve: Curve, low: int, high: int) -> SizeWorth | None:
    """Return the size halfway to the next measured one, if that lies behind a cliff.

    It is taken to go on as the sizes up to now went. Each such trial halves the distance, so there
    are few of them.
    """
    known, nodes = measured_sizes(curve), scene.now.nodes
    now = next(size for size in known if size.nodes == nodes)
    after = next((size for size in known if size.nodes > nodes), None)
    if after is None or after.nodes - nodes < 2:
        return None
    behind = off_share(curve, after) / off_share(curve, now) - 1.0
    if behind <= CLIFF_SHARE + spread_share(curve, now) + spread_share(curve, after):
        return None
    before = next((size for size in reversed(known) if size.nodes < nodes), None)
    gains = 1.0
    if before is not None:
        gains = math.log(before.step_s / now.step_s) / math.log(nodes / before.nodes)
    halfway = (nodes + after.nodes) // 2
    seconds = now.step_s * (nodes / halfway) ** min(1.0, gains)
    size = size_worth(scene, curve, Step(nodes=halfway, seconds=seconds, is_measured=False))
    return size if size.is_better and low <= halfway <= high else None


def only_known(scene: Scene, curve: Curve, low: int, high: int) -> SizeWorth | None:
    """Return a size to try where one alone is known; None: enough is known, or it costs too much.

    After the job changed there are other sizes whose shape is known, and perhaps no longer true.
    """
    nodes = scene.now.nodes
    if len(measured_sizes(curve)) > 1:
        return None
    trial_s = scene.rule.probe_s + 2.0 * scene.cost_s
    if trial_s > TRIAL_SHARE * scene.horizon_s:
        return None
    for other in (max(low, nodes // 2), min(high, 2 * nodes)):
        if other == nodes or other in curve.refused or not low <= other <= high:
            continue
        for step in steps(curve, (other,)):
            return size_worth(scene, curve, step)
    return None

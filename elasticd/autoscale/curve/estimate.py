"""The curve's estimate for a number of nodes: seconds of a step, and the error of that.

A measured size counts before the fit. Between measured sizes, and beyond them, the fit is scaled by
its factor at the nearest measured sizes. So a size behind a cliff is not estimated as good as the
fit, which passes between both sides of the cliff, would make it.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.autoscale.curve.spread import (
    is_measured,
    spread_share,
    spread_shares,
    standard_error_share,
)
from elasticd.records.autoscale.curve import Curve, SizeMeasured

__all__ = [
    "SizeEstimate",
    "elasticity",
    "error_share",
    "fit_s",
    "is_fit_right",
    "is_fitted",
    "measured_sizes",
    "off_share",
    "step_s",
    "steps",
]

OFF_LIMIT = 16.0
"""The greatest factor by which the fit is scaled."""
BEST_SHARE = 0.25
"""The limit for a size's improvement over the best measured step: if `b` is 0 and `c` is not, the
fit goes towards 0 at one node."""
SMOOTH_SHARE = 0.05
"""If a fit's error is less than this, and the spread of the windows, the fit is right about a
size."""
FIT_ERROR_SHARE = 0.1
"""The least error that is assumed for a size that was not measured, as a part of its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeEstimate:
    """The estimate for one size of the curve."""

    nodes: int
    seconds: float
    """Seconds of a step, above 0."""
    is_measured: bool

    @property
    def per_s(self) -> float:
        """Return the steps per second."""
        return 1.0 / self.seconds


def is_fitted(curve: Curve) -> bool:
    """Return whether the curve has an estimate for sizes that were not measured."""
    return curve.a > 0.0 or curve.b > 0.0 or curve.c > 0.0


def fit_s(curve: Curve, nodes: int) -> float:
    """Return the fit t(n) = a + b/n + c(n-1) alone, in seconds."""
    return curve.a + curve.b / nodes + curve.c * (nodes - 1)


def measured_sizes(curve: Curve) -> tuple[SizeMeasured, ...]:
    """Return the sizes at which the present job was measured, in the order of their nodes."""
    return tuple(size for size in curve.sizes if is_measured(size))


def step_s(curve: Curve, nodes: int) -> tuple[float, bool]:
    """Return the seconds of a step at this number of nodes, and whether they are measured.

    (0.0, False) means that nothing is known. The curve must be fitted (`fit.fitted`).
    """
    found = steps(curve, (nodes,))
    return (found[0].seconds, found[0].is_measured) if found else (0.0, False)


def steps(curve: Curve, sizes: Sequence[int]) -> tuple[SizeEstimate, ...]:
    """Return the curve's estimates at all these sizes; empty if nothing is known."""
    known = measured_sizes(curve)
    if not known or not is_fitted(curve):
        by_nodes = {size.nodes: size.step_s for size in known}
        return tuple(
            SizeEstimate(nodes=nodes, seconds=by_nodes[nodes], is_measured=True)
            for nodes in sizes
            if nodes in by_nodes
        )
    # Sizes with a known shape alone count here: a cliff is still a cliff after the job changed.
    at = [size.nodes for size in curve.sizes]
    off = [off_share(curve, size) for size in curve.sizes]
    measured_s = {size.nodes: size.step_s for size in known}
    best = min(known, key=lambda size: size.step_s)
    found = []
    for nodes in sizes:
        if nodes in measured_s:
            found.append(SizeEstimate(nodes=nodes, seconds=measured_s[nodes], is_measured=True))
            continue
        right = bisect_left(at, nodes)
        seconds = max(
            fit_s(curve, nodes) * _between(at, off, right, nodes),
            best.step_s * BEST_SHARE * min(1.0, best.nodes / nodes),
        )
        found.append(SizeEstimate(nodes=nodes, seconds=seconds, is_measured=False))
    return tuple(found)


def error_share(curve: Curve, nodes: int) -> float:
    """Return the error of a size's step, as a part of the step (one standard deviation).

    For a measured size it is the error of the mean. For other sizes it is the fit's error at the
    measured sizes, at least `FIT_ERROR_SHARE`, and it grows with each doubling of the distance from
    the nearest measured size.
    """
    known = measured_sizes(curve)
    if not known:
        return 1.0
    for size in known:
        if size.nodes == nodes:
            return standard_error_share(curve, size)
    doublings = min(abs(math.log2(nodes / size.nodes)) for size in known)
    away = max(abs(off_share(curve, size) - 1.0) for size in known)
    noise = max(spread_share(curve, size) for size in known)
    return max(FIT_ERROR_SHARE, away, noise) * (1.0 + doublings)


def off_share(curve: Curve, size: SizeMeasured) -> float:
    """Return the factor by which the fit must be multiplied at a measured size."""
    fit = fit_s(curve, size.nodes)
    if fit * OFF_LIMIT <= size.step_s:
        return OFF_LIMIT
    return max(1.0 / OFF_LIMIT, size.step_s / fit)


def is_fit_right(curve: Curve, sizes: Sequence[SizeMeasured]) -> bool:
    """Return whether the fit agrees with the measurements at all these sizes."""
    spreads = spread_shares(curve)
    return all(
        abs(off_share(curve, size) - 1.0) <= SMOOTH_SHARE + spreads[size.nodes] for size in sizes
    )


def elasticity(smaller: SizeMeasured, larger: SizeMeasured) -> float:
    """Return how the rate grows with the nodes between two sizes: 1 is growth in proportion."""
    return math.log(smaller.step_s / larger.step_s) / math.log(larger.nodes / smaller.nodes)


def _between(at: Sequence[int], off: Sequence[float], right: int, nodes: int) -> float:
    """Interpolate over the logarithm of the size; beyond the ends use the value of the end."""
    if right == 0 or (right < len(at) and at[right] == nodes):
        return off[right]
    if right == len(at):
        return off[-1]
    low, high = at[right - 1], at[right]
    share = math.log(nodes / low) / math.log(high / low)
    return off[right - 1] + share * (off[right] - off[right - 1])

"""The spread of a job's windows, and the standard error of a size's mean that follows from it."""

import math
from collections.abc import Mapping

from elasticd.records.autoscale.curve import Curve, SizeMeasured

__all__ = [
    "EFFECTIVE_WINDOWS",
    "STALE_STEPS",
    "is_measured",
    "spread_share",
    "spread_shares",
    "standard_error_share",
    "standard_errors",
]

STALE_STEPS = 0.5
"""The weight of a size that was measured before the job changed; it is below that of one step."""
UNKNOWN_SPREAD_SHARE = 0.05
"""The spread that is assumed while no size has two windows; it has the weight of one window."""
OWN_WINDOWS = 3.0
"""The weight of all sizes' spread, in windows; a size's own spread has the weight of its
windows."""
WINDOWS_ENOUGH = 10
"""More windows make a spread no more certain, since only the last windows count."""
EFFECTIVE_WINDOWS = 4.0
"""The effective number of windows in a mean that forgets by `KEPT`: (1 + 0.6) / (1 - 0.6)."""


def is_measured(size: SizeMeasured) -> bool:
    """Return whether the present job was measured at this size."""
    return size.steps > STALE_STEPS


def spread_share(curve: Curve, size: SizeMeasured) -> float:
    """Return the standard deviation of a size's windows as a part of their mean.

    Noise belongs to the job more than to a size: whether two windows agree by chance says little.
    So a size with few windows has mostly the spread of all sizes.
    """
    return _spread_share(size, _variance(curve))


def spread_shares(curve: Curve) -> Mapping[int, float]:
    """Return the spread of all sizes, by their nodes."""
    variance = _variance(curve)
    return {size.nodes: _spread_share(size, variance) for size in curve.sizes}


def standard_error_share(curve: Curve, size: SizeMeasured) -> float:
    """Return the error of a size's mean, as a part of the mean (one standard deviation)."""
    return _standard_error_share(size, _variance(curve))


def standard_errors(curve: Curve) -> Mapping[int, float]:
    """Return the standard errors of all sizes at which the present job was measured."""
    variance = _variance(curve)
    return {
        size.nodes: _standard_error_share(size, variance)
        for size in curve.sizes
        if is_measured(size)
    }


def _variance(curve: Curve) -> float:
    """Return the square of the job's spread, from all sizes together."""
    weight, total = 1.0, UNKNOWN_SPREAD_SHARE**2
    for size in curve.sizes:
        weight += _freedom(size)
        total += _freedom(size) * (size.spread_s / size.step_s) ** 2
    return total / weight


def _spread_share(size: SizeMeasured, variance: float) -> float:
    own = _freedom(size) * (size.spread_s / size.step_s) ** 2
    return math.sqrt((own + OWN_WINDOWS * variance) / (_freedom(size) + OWN_WINDOWS))


def _standard_error_share(size: SizeMeasured, variance: float) -> float:
    return _spread_share(size, variance) / math.sqrt(min(float(size.windows), EFFECTIVE_WINDOWS))


def _freedom(size: SizeMeasured) -> float:
    """Return the number of windows on which a size's spread is based."""
    return float(min(size.windows, WINDOWS_ENOUGH) - 1)

"""Fits t(n) = a + b/n + c(n-1) to the measured sizes, with a, b and c at least 0.

`a` is the work that every node does, whatever their number, `b` is the work that they share, and
`c` is the communication that each additional node adds. With a constant global batch this equals
AdaptDL's model (T_compute + T_net; adaptdl/goodput.py). The fit minimises the squares of the
relative errors, weighted by steps.

Each solution of non-negative least squares is the plain least-squares solution of the columns that
are not 0 in it. There are seven such sets of columns: all are solved, those with a negative number
are dropped, and the least error wins. This is exact, and needs no iteration that could fail. The
module is plain Python: for the few sizes of a job, a call of numpy takes longer than the
computation, and the windows of many jobs may end at the same time.

The fit is optimistic about sizes without a measurement, as in AdaptDL, so that unknown sizes are
tried. It uses no more columns than sizes, and of the sets that explain the sizes equally well,
within the noise, it takes the most optimistic one. One size alone is all `b`: twice the nodes take
half the time. Two sizes are `a + b/n` if possible, and else `b/n + c(n-1)`, which has its best size
between them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import mul

from elasticd.autoscale.curve.estimate import measured_sizes
from elasticd.autoscale.curve.spread import EFFECTIVE_WINDOWS
from elasticd.records.autoscale.curve import Curve

__all__ = ["fitted"]

A, B, C = 0, 1, 2
SETS = ((B,), (A, B), (B, C), (A, B, C), (A,), (A, C), (C,))
"""The sets of columns, the most optimistic set for unmeasured sizes first."""
STEPS_ENOUGH = 100.0
"""More steps than these make a size no more certain: the remaining error is then the model's."""
ROUNDING = 1e-7
"""Relative errors below this count as none."""
LEAST_PIVOT = 1e-10
"""The least part of a column that the other columns of its set must leave unexplained: less is
rounding."""


def fitted(curve: Curve) -> Curve:
    """Return the curve with a, b and c of its sizes; all are 0 if it has no sizes."""
    if not measured_sizes(curve):
        return replace(curve, a=0.0, b=0.0, c=0.0)
    # The unit is the longest step, so that neither microseconds nor days meet the limits of floats.
    unit_s = max(size.step_s for size in curve.sizes)
    roots = [math.sqrt(min(size.steps, STEPS_ENOUGH)) for size in curve.sizes]
    length = math.hypot(*roots)
    weights = [root / length for root in roots]
    scales = [
        weight * unit_s / size.step_s for weight, size in zip(weights, curve.sizes, strict=True)
    ]
    columns = (
        scales,
        [scale / size.nodes for scale, size in zip(scales, curve.sizes, strict=True)],
        [scale * (size.nodes - 1) for scale, size in zip(scales, curve.sizes, strict=True)],
    )
    a, b, c = _least_squares(columns, weights, noise=_noise(curve))
    return replace(curve, a=a * unit_s, b=b * unit_s, c=c * unit_s)


def _least_squares(
    columns: Sequence[Sequence[float]], wanted: Sequence[float], *, noise: float
) -> Sequence[float]:
    """Return the most optimistic (a, b, c) among those whose error is least, or below the noise."""
    # If only one node was measured, c is not known, and its column is 0.
    lengths = [math.hypot(*column) or math.inf for column in columns]
    units = [
        [value / length for value in column]
        for column, length in zip(columns, lengths, strict=True)
    ]
    products = [[sum(map(mul, one, other)) for other in units] for one in units]
    sums = [sum(map(mul, unit, wanted)) for unit in units]
    found: list[tuple[list[float], float]] = []
    for chosen in SETS:
        if len(chosen) > len(wanted):
            continue
        numbers = _solved(products, sums, chosen)
        if numbers is None or min(numbers) < -ROUNDING:
            continue
        whole = [0.0, 0.0, 0.0]
        for column, number in zip(chosen, numbers, strict=True):
            whole[column] = max(0.0, number)
        a, b, c = whole
        away = (
            a * one + b * two + c * three - value
            for one, two, three, value in zip(*units, wanted, strict=True)
        )
        found.append((whole, math.hypot(*away)))
    limit = max(min(error for _, error in found) + ROUNDING, noise)
    best = next(whole for whole, error in found if error <= limit)
    return [number / length for number, length in zip(best, lengths, strict=True)]


def _solved(
    products: Sequence[Sequence[float]], sums: Sequence[float], columns: Sequence[int]
) -> list[float] | None:
    """Return the solution of the normal equations of these columns, each of length 1.

    The result is None if two columns are equal within rounding, or if one is 0. With three unknowns
    elimination takes microseconds, while a general solver needs most of its time to start.
    """
    rows = [[*(products[i][j] for j in columns), sums[i]] for i in columns]
    for number, pivot in enumerate(rows):
        # By the products of columns, the greatest pivot is the first one, except for rounding.
        if pivot[number] < LEAST_PIVOT:
            return None
        for other in rows[number + 1 :]:
            factor = other[number] / pivot[number]
            for place in range(number, len(pivot)):
                other[place] -= factor * pivot[place]
    numbers: list[float] = []
    for number in reversed(range(len(rows))):
        known = zip(rows[number][number + 1 : -1], numbers, strict=True)
        left = rows[number][-1] - sum(factor * value for factor, value in known)
        numbers.insert(0, left / rows[number][number])
    return numbers


def _noise(curve: Curve) -> float:
    """Return the relative error of the means, as far as the differences of windows show it."""
    errors = (
        size.spread_s / size.step_s / math.sqrt(min(float(size.windows), EFFECTIVE_WINDOWS))
        for size in measured_sizes(curve)
        if size.windows > 1
    )
    return max(errors, default=0.0)

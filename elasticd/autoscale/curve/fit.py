"""Draw t(n) = a + b/n + c(n-1), a, b and c at least 0, through what was measured.

`a` is what every node does whatever their number, `b` what they share, `c` what each node more adds
to what they tell each other. With a constant global batch this is what AdaptDL's model comes to
(T_compute + T_net; adaptdl/goodput.py). Least squares of the relative errors, weighted by steps.

Each solution of non-negative least squares is the plain least-squares solution of the columns
that are not 0 in it. There are seven such sets of columns: all are solved, those with a negative
number are dropped, and the least error wins. It is exact, and needs no iteration that could fail.

What was never seen is taken to be as good as it can be, as AdaptDL does, so that unknown sizes get
tried: no more columns than sizes are used, and of sets that explain the sizes equally well, within
the noise of what was measured, the most optimistic one counts. One size alone is all `b`: twice the
nodes take half the time. Two sizes are `a + b/n` if they can be, and else `b/n + c(n-1)`, which has
its best size between them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elasticd.autoscale.curve.estimate import measured_sizes
from elasticd.autoscale.curve.spread import EFFECTIVE_WINDOWS
from elasticd.records.autoscale.curve import Curve

__all__ = ["fitted"]

A, B, C = 0, 1, 2
SETS = ((B,), (A, B), (B, C), (A, B, C), (A,), (A, C), (C,))
"""Of columns, the most optimistic for sizes not measured first."""
STEPS_ENOUGH = 100.0
"""More steps than these make a size no surer: then the model is what is wrong, not the mean."""
ROUNDING = 1e-7
"""Relative errors below this are none."""
LEAST_PIVOT = 1e-10
"""What is left of a column that the others of its set do not explain: less is rounding."""


def fitted(curve: Curve) -> Curve:
    """Return the curve with a, b and c of its sizes; one without sizes has them all 0."""
    if not measured_sizes(curve):
        return replace(curve, a=0.0, b=0.0, c=0.0)
    nodes = np.array([size.nodes for size in curve.sizes], dtype=np.float64)
    # The unit is the longest step, so that neither microseconds nor days meet the limits of floats.
    unit_s = max(size.step_s for size in curve.sizes)
    seconds = np.array([size.step_s / unit_s for size in curve.sizes], dtype=np.float64)
    weights = np.sqrt(np.array([min(size.steps, STEPS_ENOUGH) for size in curve.sizes]))
    weights /= np.sqrt(np.sum(weights**2))
    columns = np.stack([np.ones_like(nodes), 1.0 / nodes, nodes - 1.0], axis=1)
    rows = columns * (weights / seconds)[:, None]
    numbers = _least_squares(rows, weights, noise=_noise(curve)) * unit_s
    return replace(curve, a=float(numbers[A]), b=float(numbers[B]), c=float(numbers[C]))


def _least_squares(
    rows: NDArray[np.float64], wanted: NDArray[np.float64], *, noise: float
) -> NDArray[np.float64]:
    """Return the most optimistic (a, b, c) among those whose error is the least or noise."""
    lengths = np.sqrt(np.sum(rows**2, axis=0))
    lengths[lengths == 0.0] = math.inf  # Only one node was measured: c says nothing of it.
    rows = rows / lengths
    products, sums = (rows.T @ rows).tolist(), (rows.T @ wanted).tolist()
    solutions: list[list[float]] = []
    for columns in SETS:
        if len(columns) > len(wanted):
            continue
        numbers = _solved(products, sums, columns)
        if numbers is None or min(numbers) < -ROUNDING:
            continue
        whole = [0.0, 0.0, 0.0]
        for column, number in zip(columns, numbers, strict=True):
            whole[column] = max(0.0, number)
        solutions.append(whole)
    # All at once: with a handful of sizes a call of numpy costs more than what it computes.
    away = np.array(solutions) @ rows.T - wanted
    errors = np.sqrt(np.sum(away**2, axis=1)).tolist()
    limit = max(min(errors) + ROUNDING, noise)
    at = next(at for at, error in enumerate(errors) if error <= limit)
    return np.asarray(solutions[at] / lengths)


def _solved(
    products: Sequence[Sequence[float]], sums: Sequence[float], columns: Sequence[int]
) -> list[float] | None:
    """Return the solution of the normal equations of these columns, each of length 1.

    None: two of them are the same, as far as floats can tell, or one is 0. With three unknowns
    elimination takes microseconds, where a general solver takes most of its time to begin.
    """
    rows = [[*(products[i][j] for j in columns), sums[i]] for i in columns]
    for number, pivot in enumerate(rows):
        # The products of columns make the greatest pivot the first one but for rounding.
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
    """Return the relative error of the means, as far as windows that differed tell of it."""
    errors = (
        size.spread_s / size.step_s / math.sqrt(min(float(size.windows), EFFECTIVE_WINDOWS))
        for size in measured_sizes(curve)
        if size.windows > 1
    )
    return max(errors, default=0.0)

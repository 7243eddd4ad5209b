"""The possible seconds of a step at sizes without a measurement, with their probabilities.

The fit is one smooth curve. A posterior is many curves, each with a weight: the shapes of the fit,
a + b/n + c(n-1), over a grid of a/b and c/b, each without a cliff and with one cliff of several
heights above each size. The measured sizes change the weights by Bayes' rule: a curve loses weight
by its distance from the measured sizes, in their standard errors. The overall length of steps is a
free factor, so only the shape of a curve counts.

The sizes from before the job changed may still have the job's shape, scaled by a factor, or may say
nothing about it. The posterior is a mixture of both cases.

A measured size is not known exactly either: within each curve its value lies between the measured
value and the curve's value, weighted by the errors of both.

The module is plain Python, since the image of the autoscaler has no numpy, which is 70 MB.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import add
from typing import NamedTuple

__all__ = ["Posterior", "MeasuredStep", "posterior_of"]

FIXED = ((0.0, 3.0), (0.01, 2.0), (0.04, 1.5), (0.1, 1.5), (0.25, 1.5), (0.8, 0.7), (8.0, 0.3))
"""The values of a/b, each with its weight before any measurement."""
GROWING = ((0.0, 6.0), (0.001, 1.5), (0.005, 2.0), (0.025, 2.0), (0.1, 0.5))
"""The values of c/b, each with its weight before any measurement."""
CLIFFS = (1.3, 1.6, 2.0, 2.45)
"""The factors by which steps are longer behind a cliff."""
CLIFF_SHARE = 0.4
"""The weight of all curves with a cliff, before any measurement."""
SAME_SHARE = 0.3
"""The weight of the earlier shape after the job changed."""
SHAPE_ERROR = 0.02
"""The distance between real curves and the curves of the grid, as a part of the step."""
MISFIT = 0.03
"""The possible distance of a measured size from a curve that is right elsewhere, as a part of its
step."""
LEAST_WEIGHT = 1e-4
"""Curves with less weight than this part of the greatest weight are left out."""


class MeasuredStep(NamedTuple):
    """The measured duration of a step at one size of the job."""

    nodes: int
    log_s: float
    """The logarithm of the seconds of a step."""
    error: float
    """The standard error of the step, as a part of it."""


class Posterior(NamedTuple):
    """A set of curves with their probabilities."""

    weights: list[float]
    """One weight for each curve; their sum is 1."""
    log_s: list[list[float]]
    """The logarithm of the seconds of a step, of shape (curves, sizes): a row for each curve."""


class _Grid(NamedTuple):
    """All curves at some sizes, with b = 1."""

    rows: list[list[float]]
    """The logarithm of the seconds of a step: a row for each curve."""
    columns: list[tuple[float, ...]]
    """The same numbers: a column for each size."""
    prior: list[float]
    """The logarithm of each curve's weight before any measurement."""


def posterior_of(
    known: Sequence[MeasuredStep], former: Sequence[MeasuredStep], sizes: tuple[int, ...]
) -> Posterior:
    """Return the posterior at these sizes, which must contain all known sizes.

    `known` are the sizes of the present job, at least one; `former` are other sizes from before the
    job changed, scaled to the present job.
    """
    grid = _grid(sizes)
    fits, level = _likelihood(grid, sizes, known)
    logs = list(map(add, grid.prior, fits))
    if former:
        old, _ = _likelihood(grid, sizes, former)
        both, _ = _likelihood(grid, sizes, (*former, *known))
        # The former shape counts only as far as it concerns the present sizes.
        whole = _log_sum(list(map(add, grid.prior, old)))
        other, same = math.log(1.0 - SAME_SHARE), math.log(SAME_SHARE) - whole
        logs = [
            _log_sum((other + new, same + first + fit))
            for new, first, fit in zip(logs, grid.prior, both, strict=True)
        ]
    most = max(logs)
    weights = [math.exp(each - most) for each in logs]
    likely = [at for at, weight in enumerate(weights) if weight > LEAST_WEIGHT]
    total = math.fsum(weights[at] for at in likely)
    log_s = [[level[at] + each for each in grid.rows[at]] for at in likely]
    for size in known:
        column = sizes.index(size.nodes)
        share = MISFIT**2 / (MISFIT**2 + size.error**2)
        for row in log_s:
            row[column] = share * size.log_s + (1.0 - share) * row[column]
    return Posterior([weights[at] / total for at in likely], log_s)


def _likelihood(
    grid: _Grid, sizes: tuple[int, ...], known: Sequence[MeasuredStep]
) -> tuple[list[float], list[float]]:
    """Return each curve's log-likelihood, and the logarithm of the scale at which it fits best."""
    total = 0.0
    sums = [0.0] * len(grid.prior)
    squares = sums
    for size in known:
        sure, log_s = 1.0 / (size.error**2 + SHAPE_ERROR**2), size.log_s
        away = [log_s - each for each in grid.columns[sizes.index(size.nodes)]]
        total += sure
        sums = [done + sure * each for done, each in zip(sums, away, strict=True)]
        squares = [done + sure * each * each for done, each in zip(squares, away, strict=True)]
    level = [each / total for each in sums]
    fits = [
        -0.5 * (square - each * each * total) for square, each in zip(squares, level, strict=True)
    ]
    return fits, level


def _log_sum(logs: Sequence[float]) -> float:
    """Return the logarithm of the sum of numbers that are given by their logarithms."""
    most = max(logs)
    return most + math.log(math.fsum(math.exp(each - most) for each in logs))


@lru_cache(maxsize=64)
def _grid(sizes: tuple[int, ...]) -> _Grid:
    """Return all curves at these sizes, each with its weight."""
    smooth, first = [], []
    for fixed, fixed_weight in FIXED:
        for growing, growing_weight in GROWING:
            smooth.append([math.log(fixed + 1.0 / n + growing * (n - 1.0)) for n in sizes])
            first.append(fixed_weight * growing_weight)
    total = sum(first)
    rows, prior = list(smooth), [math.log(each / total * (1.0 - CLIFF_SHARE)) for each in first]
    share = CLIFF_SHARE / (len(CLIFFS) * max(1, len(sizes) - 1))
    behind = [math.log(each / total * share) for each in first]
    for before in range(1, len(sizes)):
        for height in map(math.log, CLIFFS):
            rows += [[*row[:before], *(each + height for each in row[before:])] for row in smooth]
            prior += behind
    return _Grid(rows, list(zip(*rows, strict=True)), prior)

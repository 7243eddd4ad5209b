"""What a step may take at sizes that nobody has measured, cliffs included, and how likely it is.

The fit is one smooth curve. A belief is many curves, each with a weight: the shapes of the fit,
a + b/n + c(n-1), over a grid of a/b and c/b, each without a cliff and with one cliff of several
heights above each size. What was measured weighs them, as Bayes' rule says: a curve loses weight by
how far it is from the measured sizes, in their standard errors. How long steps are in all is left
open, so only the shape counts.

What was measured before the job changed may be the shape of now, scaled, or say nothing of it. The
belief is a mixture of both.

A measured size is not known exactly either: within each curve it lies between what was measured and
what the curve says, by the errors of both.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Belief", "MeasuredStep", "believed"]

Numbers = NDArray[np.float64]

FIXED = ((0.0, 3.0), (0.01, 2.0), (0.04, 1.5), (0.1, 1.5), (0.25, 1.5), (0.8, 0.7), (8.0, 0.3))
"""Values of a/b, each with its weight before anything is measured."""
GROWING = ((0.0, 6.0), (0.001, 1.5), (0.005, 2.0), (0.025, 2.0), (0.1, 0.5))
"""Values of c/b, likewise."""
CLIFFS = (1.3, 1.6, 2.0, 2.45)
"""How many times longer steps are behind a cliff."""
CLIFF_SHARE = 0.4
"""The weight of all curves with a cliff, before anything is measured."""
SAME_SHARE = 0.3
"""The weight of the shape of before, after the job changed."""
SHAPE_ERROR = 0.02
"""How far real curves and those of the grid are apart, as a part of the step."""
MISFIT = 0.03
"""How far a measured size may be from a curve that is right elsewhere, as a part of its step."""
LEAST_WEIGHT = 1e-4
"""Curves with less weight than this part of the greatest are left out."""


class MeasuredStep(NamedTuple):
    """One measured size."""

    nodes: int
    log_s: float
    """The logarithm of the seconds of a step."""
    error: float
    """One standard error of it, as a part of the step."""


class Belief(NamedTuple):
    """Curves, and how likely each of them is."""

    weights: Numbers
    """One number for each curve; their sum is 1."""
    log_s: Numbers
    """The logarithm of the seconds of a step: a row for each curve, a column for each size."""


def believed(
    known: Sequence[MeasuredStep], former: Sequence[MeasuredStep], sizes: tuple[int, ...]
) -> Belief:
    """Return the belief at these sizes, which must contain all that are known.

    `known` are the sizes of the job as it is now, at least one; `former` others from before,
    scaled to the job as it is now.
    """
    shapes, prior = _grid(sizes)
    fits, level = _likelihood(shapes, sizes, known)
    logs = prior + fits
    if former:
        old, _ = _likelihood(shapes, sizes, former)
        both, _ = _likelihood(shapes, sizes, (*former, *known))
        # What the former shape says counts only as far as it is about the sizes of now.
        same = prior + both - np.logaddexp.reduce(prior + old)
        logs = np.logaddexp(math.log(1.0 - SAME_SHARE) + logs, math.log(SAME_SHARE) + same)
    weights = np.exp(logs - logs.max())
    is_likely = weights > LEAST_WEIGHT
    weights = weights[is_likely] / weights[is_likely].sum()
    log_s = level[is_likely][:, None] + shapes[is_likely]
    for size in known:
        at = sizes.index(size.nodes)
        share = MISFIT**2 / (MISFIT**2 + size.error**2)
        log_s[:, at] = share * size.log_s + (1.0 - share) * log_s[:, at]
    return Belief(weights, log_s)


def _likelihood(
    shapes: Numbers, sizes: tuple[int, ...], known: Sequence[MeasuredStep]
) -> tuple[Numbers, Numbers]:
    """Return the logarithm of each curve's likelihood, and by what it is scaled to fit best."""
    columns = [sizes.index(size.nodes) for size in known]
    surety = np.array([1.0 / (size.error**2 + SHAPE_ERROR**2) for size in known])
    away = np.array([size.log_s for size in known]) - shapes[:, columns]
    level = away @ surety / surety.sum()
    fits = -0.5 * ((away * away) @ surety - level * level * surety.sum())
    return fits, level


@lru_cache(maxsize=64)
def _grid(sizes: tuple[int, ...]) -> tuple[Numbers, Numbers]:
    """Return all curves at these sizes with b = 1, and the logarithms of their first weights."""
    nodes = np.array(sizes, dtype=np.float64)
    smooth, weight = [], []
    for fixed, fixed_weight in FIXED:
        for growing, growing_weight in GROWING:
            smooth.append(np.log(fixed + 1.0 / nodes + growing * (nodes - 1.0)))
            weight.append(fixed_weight * growing_weight)
    curves, first = np.array(smooth), np.array(weight) / sum(weight)
    shapes, prior = [curves], [first * (1.0 - CLIFF_SHARE)]
    for last_before in sizes[:-1]:
        for height in CLIFFS:
            shapes.append(curves + np.where(nodes > last_before, math.log(height), 0.0))
            prior.append(first * CLIFF_SHARE / (len(CLIFFS) * (len(sizes) - 1)))
    return np.vstack(shapes), np.log(np.concatenate(prior))

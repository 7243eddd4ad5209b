"""The posterior and what a trial tells, in numpy: what the shipped ones in plain Python must say.

They say the same with matrices, in a tenth of the lines' loops; numpy is not in the image of the
autoscaler, so the shipped ones do without it.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticd.autoscale.curve.information_value import (
    ALIKE_SHARE,
    HORIZONS,
    LEAST_VALUE,
    PARTS,
    REACH,
    SIZES_MOST,
    TELLS_APART,
    UNTIL_SHARE,
    WASTE_SHARE,
    TrialQuestion,
)
from elasticd.autoscale.curve.posterior import (
    CLIFF_SHARE,
    CLIFFS,
    FIXED,
    GROWING,
    LEAST_WEIGHT,
    MISFIT,
    SAME_SHARE,
    SHAPE_ERROR,
    MeasuredStep,
)
from elasticd.autoscale.curve.window import FIRST_STEPS, WINDOW_STEPS

__all__ = ["numpy_answer", "numpy_posterior_of"]

Numbers = NDArray[np.float64]


class NumpyPosterior(NamedTuple):
    """Curves, and how likely each of them is."""

    weights: Numbers
    """One number for each curve; their sum is 1."""
    log_s: Numbers
    """The logarithm of the seconds of a step: a row for each curve, a column for each size."""


def numpy_posterior_of(
    known: Sequence[MeasuredStep], former: Sequence[MeasuredStep], sizes: tuple[int, ...]
) -> NumpyPosterior:
    """Return the posterior at these sizes, which must contain all that are known.

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
    return NumpyPosterior(weights, log_s)


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


def numpy_answer(asked: TrialQuestion) -> tuple[int, float] | None:
    """Return the size and the length of a step that is expected there."""
    at = _sizes(asked)
    posterior = numpy_posterior_of(asked.known, asked.former, at)
    goodness = _goodness(posterior, at, asked)
    mean, step = posterior.weights @ goodness, posterior.weights @ np.exp(posterior.log_s)
    measured = {size.nodes for size in asked.known}
    # What was taken back is no size to go to, whatever came of it.
    is_open = np.array(
        [asked.low <= n <= asked.high and (n == asked.now or n not in asked.refused) for n in at]
    )
    is_known = np.array([n in measured for n in at])
    now = float(mean[at.index(asked.now)])
    best = max(now, float(mean[is_open & is_known].max(initial=0.0)))
    horizon = HORIZONS * asked.horizon
    found: list[tuple[float, int]] = []
    for place, nodes in enumerate(at):
        is_near = min(measured) <= REACH * nodes and nodes <= REACH * max(measured)
        if is_known[place] or not is_open[place] or not is_near:
            continue
        measuring = max(asked.probe, WINDOW_STEPS * float(step[place]))
        trial = FIRST_STEPS * float(step[place]) + measuring * (1.0 + UNTIL_SHARE)
        if 2.0 * trial > horizon:
            continue
        after = _after(posterior, goodness, place, is_open, asked.cost / horizon)
        spent = trial * (now - float(mean[place])) + asked.cost * now
        value = (horizon - trial) * (after - best) - spent
        found.append((value, nodes))
    value, nodes = max(found, default=(0.0, 0))
    if value <= LEAST_VALUE * (1 + asked.turns) * horizon:
        return None
    rate = float(posterior.weights @ np.exp(-posterior.log_s[:, at.index(nodes)]))
    return nodes, 1.0 / rate


def _sizes(asked: TrialQuestion) -> tuple[int, ...]:
    """Return the sizes that are looked at: all that were measured, and those that are allowed."""
    known = {size.nodes for size in (*asked.known, *asked.former)}
    low, high = min(asked.low, *known), max(asked.high, *known)
    if high - low < SIZES_MOST:
        return tuple(range(low, high + 1))
    factor = math.log(high / low) / (SIZES_MOST - 1)
    spread = {round(low * math.exp(factor * number)) for number in range(SIZES_MOST)}
    return tuple(sorted({*known, asked.now, *spread}))


def _goodness(posterior: NumpyPosterior, at: tuple[int, ...], asked: TrialQuestion) -> Numbers:
    """Return how good each size is on each curve, where the right size is 1."""
    nodes, places = np.array(at, dtype=np.float64), np.arange(len(at))
    rate = np.exp(-posterior.log_s)
    worth = rate * nodes**-asked.share
    worth = np.where((nodes >= asked.low) & (nodes <= asked.high), worth, 0.0)
    most = worth.max(axis=1, keepdims=True)
    # The largest of those that are worth nearly the most.
    is_replicated = worth >= most * (1.0 - ALIKE_SHARE)
    right = len(at) - 1 - is_replicated[:, ::-1].argmax(axis=1)
    steps = np.minimum(1.0, rate / rate[np.arange(len(right)), right][:, None])
    wasted = np.where(places > right[:, None], 1.0 - worth / most, 0.0)
    goodness: Numbers = steps - WASTE_SHARE * wasted
    return goodness


def _after(
    posterior: NumpyPosterior,
    goodness: Numbers,
    place: int,
    is_open: NDArray[np.bool_],
    change: float,
) -> float:
    """Return how good the best size will be known to be once this one was tried.

    Curves that a window at that size cannot tell apart stay one outcome.
    """
    log_s = posterior.log_s[:, place]
    width = max(TELLS_APART, float(np.ptp(log_s)) / PARTS)
    outcome = ((log_s - log_s.min()) / width).astype(np.intp)
    split = np.zeros((int(outcome.max()) + 1, len(outcome)))
    split[outcome, np.arange(len(outcome))] = posterior.weights
    gained = split @ goodness - change * split.sum(axis=1, keepdims=True)
    gained[:, place] += change * split.sum(axis=1)
    return float(gained[:, is_open].max(axis=1).sum())

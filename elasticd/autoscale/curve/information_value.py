"""The size that is tried where the job would settle, since what it tells may be worth much.

The rules that try sizes know where to look for a cliff, and stop at the first size that looks
right. They can be wrong by half of the job's steps: where behind a small cliff the rate grows in
proportion to the nodes, or where a cliff lies below or just below the present size. So before a job
settles, what a trial of each other size is worth is asked of the belief about the curve: what the
job would gain if it knew that size, over the time for which it is known, less the steps that the
trial costs. The gain counts against the best size that is known already, so that a trial is for
what it tells, and it must be clear, and the more so, the more often the job
has turned.

How good a size is, is counted in parts of the right size's rate, on each curve of the belief. With
too few nodes a job loses steps; with too many it loses what those nodes are worth, of which half
counts, as in doubt a job trains on more nodes.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticd.autoscale.curve.belief import Belief, MeasuredStep, Numbers, believed
from elasticd.autoscale.curve.window import FIRST_STEPS, WINDOW_STEPS

__all__ = ["MOST_TURNS", "SIZES_MOST", "TrialQuestion", "trial_answer"]

HORIZONS = 4.0
"""For how many horizons what a trial tells is of use: a job that settles may stay for hours."""
LEAST_VALUE = 0.03
"""What a trial must be worth, in parts of all the steps of that time; as much more for each turn
that the job has made."""
MOST_TURNS = 6
"""A job that has turned so often is left where it is."""
ALIKE_SHARE = 0.01
WASTE_SHARE = 0.5
"""How much of what superfluous nodes are worth counts against a size."""
REACH = 4
"""No size is tried that is further than this factor from all that were measured."""
UNTIL_SHARE = 1.0 / 3.0
"""The part of a trial's time after which it is noticed to be over."""
TELLS_APART = 0.05
"""Two rates of one size that differ by less than this look the same in a window."""
PARTS = 12
"""How many outcomes of a trial are told apart at most."""
SIZES_MOST = 24
"""How many sizes are looked at: beyond, they are spread evenly over the logarithm."""


class TrialQuestion(NamedTuple):
    """All that the answer depends on; all times are in steps at the present size."""

    known: tuple[MeasuredStep, ...]
    former: tuple[MeasuredStep, ...]
    refused: tuple[int, ...]
    now: int
    low: int
    high: int
    turns: int
    share: float
    probe: float
    horizon: float
    cost: float


@lru_cache(maxsize=1024)
def trial_answer(asked: TrialQuestion) -> tuple[int, float] | None:
    """Return the size and the length of a step that is expected there."""
    at = _sizes(asked)
    belief = believed(asked.known, asked.former, at)
    goodness = _goodness(belief, at, asked)
    mean, step = belief.weights @ goodness, belief.weights @ np.exp(belief.log_s)
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
        after = _after(belief, goodness, place, is_open, asked.cost / horizon)
        spent = trial * (now - float(mean[place])) + asked.cost * now
        value = (horizon - trial) * (after - best) - spent
        found.append((value, nodes))
    value, nodes = max(found, default=(0.0, 0))
    if value <= LEAST_VALUE * (1 + asked.turns) * horizon:
        return None
    rate = float(belief.weights @ np.exp(-belief.log_s[:, at.index(nodes)]))
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


def _goodness(belief: Belief, at: tuple[int, ...], asked: TrialQuestion) -> Numbers:
    """Return how good each size is on each curve, where the right size is 1."""
    nodes, places = np.array(at, dtype=np.float64), np.arange(len(at))
    rate = np.exp(-belief.log_s)
    worth = rate * nodes**-asked.share
    worth = np.where((nodes >= asked.low) & (nodes <= asked.high), worth, 0.0)
    most = worth.max(axis=1, keepdims=True)
    # The largest of those that are worth nearly the most.
    is_alike = worth >= most * (1.0 - ALIKE_SHARE)
    right = len(at) - 1 - is_alike[:, ::-1].argmax(axis=1)
    steps = np.minimum(1.0, rate / rate[np.arange(len(right)), right][:, None])
    wasted = np.where(places > right[:, None], 1.0 - worth / most, 0.0)
    goodness: Numbers = steps - WASTE_SHARE * wasted
    return goodness


def _after(
    belief: Belief, goodness: Numbers, place: int, is_open: NDArray[np.bool_], change: float
) -> float:
    """Return how good the best size will be known to be once this one was tried.

    Curves that a window at that size cannot tell apart stay one outcome.
    """
    log_s = belief.log_s[:, place]
    width = max(TELLS_APART, float(np.ptp(log_s)) / PARTS)
    outcome = ((log_s - log_s.min()) / width).astype(np.intp)
    split = np.zeros((int(outcome.max()) + 1, len(outcome)))
    split[outcome, np.arange(len(outcome))] = belief.weights
    gained = split @ goodness - change * split.sum(axis=1, keepdims=True)
    gained[:, place] += change * split.sum(axis=1)
    return float(gained[:, is_open].max(axis=1).sum())

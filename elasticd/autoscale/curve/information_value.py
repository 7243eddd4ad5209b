"""Finds the size whose trial is worth it for its information, before a job settles.

The rules that try sizes know where to look for a cliff, and stop at the first size that seems
right. They can lose half of the job's steps: if the rate grows in proportion to the nodes behind a
small cliff, or if a cliff lies below or just below the present size. So before a job settles, the
posterior about the curve gives the value of a trial of each other size: the job's gain if it knew
that size, over the time in which the knowledge is of use, less the steps that the trial costs. The
gain counts against the best known size, so that a trial is made for its information. It must be
clear, and the more so, the more often the job has turned.

The quality of a size is a part of the right size's rate, on each curve of the posterior. With too
few nodes a job loses steps; with too many it loses the worth of those nodes, of which half counts,
since in doubt a job trains on more nodes.
"""

import math
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from elasticd.autoscale.curve.posterior import MeasuredStep, Posterior, posterior_of
from elasticd.autoscale.curve.window import FIRST_STEPS, WINDOW_STEPS

__all__ = [
    "MOST_TURNS",
    "SIZES_MOST",
    "TrialQuestion",
    "rounded",
    "shortened",
    "trial_answer",
]

HORIZONS = 4.0
"""The number of horizons in which a trial's information is of use: a job that settles may stay for
hours."""
LEAST_VALUE = 0.03
"""The least worth of a trial, as a part of all the steps of that time; the same is added for each
turn that the job has made."""
MOST_TURNS = 6
"""A job that has turned this many times keeps its size."""
ALIKE_SHARE = 0.01
WASTE_SHARE = 0.5
"""The part of the worth of superfluous nodes that counts against a size."""
REACH = 4
"""A size is not tried if it is further than this factor from all measured sizes."""
UNTIL_SHARE = 1.0 / 3.0
"""The part of a trial's duration after which the end of the trial is noticed."""
TELLS_APART = 0.05
"""Two rates of one size that differ by less than this look the same in a window."""
PARTS = 12
"""The greatest number of outcomes of a trial that are distinguished."""
GRAIN = 0.005
"""Measured numbers are rounded to this part of a step, so that one answer serves all evaluations
between two windows, and also windows with nothing new."""
SIZES_MOST = 24
"""The greatest number of sizes that are considered: more sizes are spread evenly over the
logarithm."""


class TrialQuestion(NamedTuple):
    """All inputs of the answer; all times are in steps at the present size."""

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
    """Return the size to try and the expected seconds of a step; None if no trial is worth it."""
    at = _sizes(asked)
    posterior = posterior_of(asked.known, asked.former, at)
    gains = _weighted_goodness(posterior, at, asked)
    mean = list(map(sum, zip(*gains, strict=True)))
    measured = {size.nodes for size in asked.known}
    # A size that was taken back is no size to choose, whatever a trial shows.
    is_open = [
        asked.low <= n <= asked.high and (n == asked.now or n not in asked.refused) for n in at
    ]
    now = mean[at.index(asked.now)]
    known = (mean[place] for place, n in enumerate(at) if is_open[place] and n in measured)
    best = max(0.0, now, *known)
    horizon = HORIZONS * asked.horizon
    found: list[tuple[float, int]] = []
    for place, nodes in enumerate(at):
        is_near = min(measured) <= REACH * nodes and nodes <= REACH * max(measured)
        if nodes in measured or not is_open[place] or not is_near:
            continue
        step = _expected(posterior, place, 1.0)
        measuring = max(asked.probe, WINDOW_STEPS * step)
        trial = FIRST_STEPS * step + measuring * (1.0 + UNTIL_SHARE)
        if 2.0 * trial > horizon:
            continue
        after = _after(posterior, gains, place, is_open, asked.cost / horizon)
        spent = trial * (now - mean[place]) + asked.cost * now
        value = (horizon - trial) * (after - best) - spent
        found.append((value, nodes))
    value, nodes = max(found, default=(0.0, 0))
    if value <= LEAST_VALUE * (1 + asked.turns) * horizon:
        return None
    return nodes, 1.0 / _expected(posterior, at.index(nodes), -1.0)


def rounded(value: float) -> float:
    """Return a measured number in the form for a question, rounded to `GRAIN`."""
    return round(value / GRAIN) * GRAIN


def shortened(value: float) -> float:
    """Return a time in the form for a question, with two digits."""
    return float(f"{value:.2g}")


def _sizes(asked: TrialQuestion) -> tuple[int, ...]:
    """Return the sizes that are considered: all measured sizes, and the allowed sizes."""
    known = {size.nodes for size in (*asked.known, *asked.former)}
    low, high = min(asked.low, *known), max(asked.high, *known)
    if high - low < SIZES_MOST:
        return tuple(range(low, high + 1))
    factor = math.log(high / low) / (SIZES_MOST - 1)
    spread = {round(low * math.exp(factor * number)) for number in range(SIZES_MOST)}
    return tuple(sorted({*known, asked.now, *spread}))


def _expected(posterior: Posterior, place: int, power: float) -> float:
    """Return the expected value of the seconds of a step at one size, to this power."""
    exp = math.exp
    return sum(
        weight * exp(power * row[place])
        for weight, row in zip(posterior.weights, posterior.log_s, strict=True)
    )


def _weighted_goodness(
    posterior: Posterior, at: tuple[int, ...], asked: TrialQuestion
) -> list[list[float]]:
    """Return each size's quality on each curve, times the curve's weight; the right size has 1."""
    price = [float(n) ** -asked.share if asked.low <= n <= asked.high else 0.0 for n in at]
    found = []
    for weight, row in zip(posterior.weights, posterior.log_s, strict=True):
        rates = [math.exp(-each) for each in row]
        worths = list(map(mul, rates, price))
        most = max(worths)
        least = most * (1.0 - ALIKE_SHARE)
        # The right size is the largest of those that are worth nearly the most.
        right = max(place for place, worth in enumerate(worths) if worth >= least)
        rate = rates[right]
        goods = [weight * min(1.0, each / rate) for each in rates]
        for place in range(right + 1, len(at)):
            goods[place] -= weight * WASTE_SHARE * (1.0 - worths[place] / most)
        found.append(goods)
    return found


def _after(
    posterior: Posterior, gains: list[list[float]], place: int, is_open: list[bool], change: float
) -> float:
    """Return the expected quality of the best size after a trial of this one.

    Curves that a window at that size cannot distinguish are one outcome.
    """
    logs = [row[place] for row in posterior.log_s]
    low = min(logs)
    width = max(TELLS_APART, (max(logs) - low) / PARTS)
    outcomes: dict[int, list[int]] = {}
    for number, each in enumerate(logs):
        outcomes.setdefault(int((each - low) / width), []).append(number)
    total = 0.0
    for curves in outcomes.values():
        spent = change * sum(posterior.weights[number] for number in curves)
        gained = map(sum, zip(*(gains[number] for number in curves), strict=True))
        total += max(
            good if at == place else good - spent for at, good in enumerate(gained) if is_open[at]
        )
    return total

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
from operator import mul
from typing import NamedTuple

from elasticd.autoscale.curve.belief import Belief, MeasuredStep, believed
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
GRAIN = 0.005
"""What was measured is rounded to this part of a step, so that one answer serves for the
evaluations between two windows, and for windows that bring nothing new."""
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
    gains = _weighted_goodness(belief, at, asked)
    mean = list(map(sum, zip(*gains, strict=True)))
    measured = {size.nodes for size in asked.known}
    # What was taken back is no size to go to, whatever came of it.
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
        step = _expected(belief, place, 1.0)
        measuring = max(asked.probe, WINDOW_STEPS * step)
        trial = FIRST_STEPS * step + measuring * (1.0 + UNTIL_SHARE)
        if 2.0 * trial > horizon:
            continue
        after = _after(belief, gains, place, is_open, asked.cost / horizon)
        spent = trial * (now - mean[place]) + asked.cost * now
        value = (horizon - trial) * (after - best) - spent
        found.append((value, nodes))
    value, nodes = max(found, default=(0.0, 0))
    if value <= LEAST_VALUE * (1 + asked.turns) * horizon:
        return None
    return nodes, 1.0 / _expected(belief, at.index(nodes), -1.0)


def rounded(value: float) -> float:
    """Return a measured number as a question has it, rounded to `GRAIN`."""
    return round(value / GRAIN) * GRAIN


def shortened(value: float) -> float:
    """Return a time as a question has it, with two digits."""
    return float(f"{value:.2g}")


def _sizes(asked: TrialQuestion) -> tuple[int, ...]:
    """Return the sizes that are looked at: all that were measured, and those that are allowed."""
    known = {size.nodes for size in (*asked.known, *asked.former)}
    low, high = min(asked.low, *known), max(asked.high, *known)
    if high - low < SIZES_MOST:
        return tuple(range(low, high + 1))
    factor = math.log(high / low) / (SIZES_MOST - 1)
    spread = {round(low * math.exp(factor * number)) for number in range(SIZES_MOST)}
    return tuple(sorted({*known, asked.now, *spread}))


def _expected(belief: Belief, place: int, power: float) -> float:
    """Return what the seconds of a step at one size, to this power, are expected to be."""
    exp = math.exp
    return sum(
        weight * exp(power * row[place])
        for weight, row in zip(belief.weights, belief.log_s, strict=True)
    )


def _weighted_goodness(
    belief: Belief, at: tuple[int, ...], asked: TrialQuestion
) -> list[list[float]]:
    """Return how good each size is on each curve, where the right size is 1, times the curve's
    weight.
    """
    price = [float(n) ** -asked.share if asked.low <= n <= asked.high else 0.0 for n in at]
    found = []
    for weight, row in zip(belief.weights, belief.log_s, strict=True):
        rates = [math.exp(-each) for each in row]
        worths = list(map(mul, rates, price))
        most = max(worths)
        least = most * (1.0 - ALIKE_SHARE)
        # The largest of those that are worth nearly the most.
        right = max(place for place, worth in enumerate(worths) if worth >= least)
        rate = rates[right]
        goods = [weight * min(1.0, each / rate) for each in rates]
        for place in range(right + 1, len(at)):
            goods[place] -= weight * WASTE_SHARE * (1.0 - worths[place] / most)
        found.append(goods)
    return found


def _after(
    belief: Belief, gains: list[list[float]], place: int, is_open: list[bool], change: float
) -> float:
    """Return how good the best size will be known to be once this one was tried.

    Curves that a window at that size cannot tell apart stay one outcome.
    """
    logs = [row[place] for row in belief.log_s]
    low = min(logs)
    width = max(TELLS_APART, (max(logs) - low) / PARTS)
    outcomes: dict[int, list[int]] = {}
    for number, each in enumerate(logs):
        outcomes.setdefault(int((each - low) / width), []).append(number)
    total = 0.0
    for curves in outcomes.values():
        spent = change * sum(belief.weights[number] for number in curves)
        gained = map(sum, zip(*(gains[number] for number in curves), strict=True))
        total += max(
            good if at == place else good - spent for at, good in enumerate(gained) if is_open[at]
        )
    return total

"""The form in which a histogram travels from a worker's device to its file. Pure.

For each tensor it has six sums and BINS counts: how many values are finite, how many are not, the
least and the greatest of the finite ones, their sum and the sum of their squares; then how many lie
in each of BINS equal parts between the least and the greatest.
"""

import math
from collections.abc import Sequence

from elasticd.tensorboard.event import Histogram

__all__ = ["BINS", "LENGTH", "SUMS", "histogram_of", "not_finite"]

BINS = 64
"""TensorBoard draws 30 of what it gets."""
SUMS = 6
LENGTH = SUMS + BINS


def histogram_of(numbers: Sequence[float]) -> Histogram | None:
    """Read LENGTH numbers; None: no value was finite."""
    count, _, least, greatest, total, squares = numbers[:SUMS]
    if count <= 0:
        return None
    counts: Sequence[float] = numbers[SUMS:]
    if greatest / BINS - least / BINS > 0.0:
        shares = [(index + 1) / BINS for index in range(BINS)]
        limits = [least * (1.0 - share) + greatest * share for share in shares]
    else:
        limits, counts = [math.nextafter(least, math.inf)], [count]
    return Histogram(
        least=least,
        greatest=greatest,
        count=count,
        total=total,
        total_of_squares=squares,
        limits=limits,
        counts=counts,
    )


def not_finite(numbers: Sequence[float]) -> float:
    """Return how many values were NaN or infinite."""
    return numbers[1]

"""The form in which a histogram is sent from a worker's device to its file. Pure.

For each tensor it has six sums and BINS counts. The sums are: the number of finite values, the
number of others, the least and the greatest finite value, the sum of the finite values and the sum
of their squares. The counts are the numbers of values in each of BINS equal parts between the least
and the greatest.
"""

import math
from collections.abc import Sequence

from elasticd.tensorboard.event import Histogram

__all__ = ["BINS", "LENGTH", "SUMS", "histogram_of", "not_finite"]

BINS = 64
"""The number of parts; TensorBoard draws 30 of them."""
SUMS = 6
LENGTH = SUMS + BINS


def histogram_of(numbers: Sequence[float]) -> Histogram | None:
    """Build a histogram from LENGTH numbers; return None if no value was finite."""
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
    """Return the number of values that were NaN or infinite."""
    return numbers[1]

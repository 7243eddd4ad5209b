"""The sizes that a rule may ask for: the policy's, within the job's own."""

import math

from elasticd.autoscale.evaluation_input import Observation
from elasticd.records.autoscale.policy import Policy

__all__ = ["sizes_between", "size_range"]

EACH_TO = 512
"""The number of nodes up to which each size is considered."""
BEYOND_SHARE = 0.02
"""Beyond that number, only sizes that differ by this share are considered: a MAX of a million,
which people write for "all that there are", must not delay the evaluation of all jobs."""


def size_range(policy: Policy, seen: Observation) -> tuple[int, int]:
    """Return the least and the greatest number of nodes; a policy never widens the job's range."""
    low = min(max(policy.min_nodes, seen.min_nodes, 1), max(1, seen.max_nodes))
    high = seen.max_nodes if policy.max_nodes <= 0 else min(policy.max_nodes, seen.max_nodes)
    return low, max(low, high)


def sizes_between(low: int, high: int) -> tuple[int, ...]:
    """Return the sizes that are considered, with `low` and `high` included; each is at least 1."""
    sizes = list(range(low, min(high, low + EACH_TO) + 1))
    while sizes[-1] < high:
        sizes.append(min(high, math.ceil(sizes[-1] * (1.0 + BEYOND_SHARE))))
    return tuple(sizes)

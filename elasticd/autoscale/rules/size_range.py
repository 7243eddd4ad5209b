"""The sizes that a rule may ask for: the policy's, within the job's own."""

from elasticd.autoscale.seen import Seen
from elasticd.records.autoscale.policy import Policy

__all__ = ["size_range"]


def size_range(policy: Policy, seen: Seen) -> tuple[int, int]:
    """Return the least and the greatest number of nodes; a policy never widens the job's range."""
    low = min(max(policy.min_nodes, seen.min_nodes, 1), max(1, seen.max_nodes))
    high = seen.max_nodes if policy.max_nodes <= 0 else min(policy.max_nodes, seen.max_nodes)
    return low, max(low, high)

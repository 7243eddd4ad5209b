"""Which worker gets which rank: contiguous, grouped by node, and as unchanged as possible."""

import re
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import replace

from elasticd.records.ids import NodeId, Rank
from elasticd.records.world import World, WorldNode

__all__ = ["natural", "order_nodes", "with_ranks"]


def order_nodes(
    previous: World | None, chosen: Sequence[NodeId], survivors: Set[NodeId]
) -> list[NodeId]:
    """Put the chosen nodes in the order of their ranks.

    Survivors stay where they were; a newcomer takes the place of a lost node (so that a spare does
    not move everybody), except the first place: rank 0 stays with a survivor, which has the state.
    `chosen` is in the order of preference, `survivors` those of it whose incarnation was in the
    previous world. Without any, neighbours by name become neighbours by rank.
    """
    if previous is None or not survivors:
        return sorted(chosen, key=natural)
    newcomers = deque(node for node in chosen if node not in survivors)
    ordered: list[NodeId] = []
    for node in (n.node for n in previous.nodes):
        if node in survivors:
            ordered.append(node)
        elif ordered and newcomers:
            ordered.append(newcomers.popleft())
    return [*ordered, *newcomers]


def with_ranks(nodes: Sequence[WorldNode]) -> tuple[WorldNode, ...]:
    """Number the workers of the nodes in this order."""
    ranked = []
    next_rank = 0
    for node in nodes:
        ranked.append(replace(node, first_rank=Rank(next_rank)))
        next_rank += len(node.workers)
    return tuple(ranked)


def natural(node: NodeId) -> list[tuple[int, int, str]]:
    """Return a sort key under which node-2 comes before node-10."""
    parts = re.findall(r"\d+|\D+", node)
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]

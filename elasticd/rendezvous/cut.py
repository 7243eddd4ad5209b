"""Whom a world does without where its nodes cannot all reach each other.

The nodes that accuse each other are the two ends of an edge; a set of nodes without an edge between
them can train. To find the greatest is hard in general and easy in practice: networks fail at a
node or at a switch, so whoever is at the most edges goes first. Of two that accuse each other alone
the one with the higher rank goes: rank 0 stays, and everybody decides alike.
"""

from collections.abc import Set

from elasticd.records.ids import NodeId
from elasticd.records.world import World
from elasticd.rendezvous.state import JobState

__all__ = ["cut_off"]


def cut_off(state: JobState, world: World, well: Set[NodeId]) -> frozenset[NodeId]:
    """Return which of those that are `well` to leave out of the next world; mostly nobody."""
    edges = {edge for edge in _edges(state, world) if edge <= well}
    rank_of = {node.node: node.first_rank for node in world.nodes}
    out: set[NodeId] = set()
    while edges:
        ends = [node for edge in edges for node in edge]
        worst = max(set(ends), key=lambda node: (ends.count(node), rank_of[node]))
        out.add(worst)
        edges = {edge for edge in edges if worst not in edge}
    return frozenset(out)


def _edges(state: JobState, world: World) -> set[frozenset[NodeId]]:
    edges = set()
    for node in world.nodes:
        seen = state.members.get(node.node)
        if seen is None or seen.member.incarnation != node.incarnation:
            continue
        if seen.member.broken != world.generation:
            continue
        for other in seen.member.cut_off:
            if other != node.node and world.node(other) is not None:
                edges.add(frozenset((node.node, other)))
    return edges

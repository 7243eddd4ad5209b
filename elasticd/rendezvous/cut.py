"""Whom a world does without where its nodes cannot all reach each other.

The nodes that accuse each other are the two ends of an edge; a set of nodes without an edge between
them can train. To find the greatest is hard in general and easy in practice: networks fail at a
node or at a switch, so whoever is at the most edges goes first. Of two that accuse each other alone
the one with the higher rank goes: rank 0 stays, and everybody decides alike.

The work is that of the edges, not of their square: a switch that parts a thousand nodes makes half
a million of them, and every look at the world asks anew.
"""

from collections import defaultdict
from collections.abc import Mapping, Set
from heapq import heapify, heapreplace

from elasticd.records.ids import NodeId
from elasticd.records.world import World
from elasticd.rendezvous.state import JobState

__all__ = ["cut_off"]


def cut_off(state: JobState, world: World, well: Set[NodeId]) -> frozenset[NodeId]:
    """Return which of those that are `well` to leave out of the next world; mostly nobody."""
    edges = _edges(state, world, well)
    if not edges:
        return frozenset()
    degree = {node: len(others) for node, others in edges.items()}
    rank_of = {node.node: node.first_rank for node in world.nodes}
    # Degrees only fall, so one that is out of date stands too high up: it is corrected on top.
    heap = [(-count, -rank_of[node], node) for node, count in degree.items()]
    heapify(heap)
    out: set[NodeId] = set()
    while heap[0][0] < 0:
        known, place, node = heap[0]
        count = degree[node]
        if -count == known:
            out.add(node)
            for other in edges[node]:
                degree[other] -= 1
            count = degree[node] = 0
        heapreplace(heap, (-count, place, node))
    return frozenset(out)


def _edges(state: JobState, world: World, well: Set[NodeId]) -> Mapping[NodeId, Set[NodeId]]:
    """Return for each node that is at an edge who is at its other ends."""
    here = {node.node for node in world.nodes if node.node in well}
    # A broken switch makes all nodes on one side of it accuse the same ones: taken together.
    accusers: dict[tuple[NodeId, ...], list[NodeId]] = {}
    for node in world.nodes:
        seen = state.members.get(node.node)
        if seen is None or seen.member.incarnation != node.incarnation or node.node not in here:
            continue
        if seen.member.broken == world.generation and seen.member.cut_off:
            accusers.setdefault(seen.member.cut_off, []).append(node.node)
    edges: defaultdict[NodeId, set[NodeId]] = defaultdict(set)
    for names, by in accusers.items():
        accused = here.intersection(names)
        for name in accused:
            edges[name].update(by)
        for name in by:
            edges[name].update(accused)
    for name, others in edges.items():
        others.discard(name)
    return edges

"""Which nodes a world goes on without if its nodes cannot all reach each other.

Two nodes that accuse each other are the two ends of an edge; a set of nodes without an edge between
them can train. To find the largest such set is hard in general and easy in practice: networks fail
at a node or at a switch, so the node with the most edges is removed first. Of two that accuse only
each other the one with the higher rank is removed: rank 0 stays, and all nodes decide alike.

A switch that separates a thousand nodes makes a quarter of a million edges, and every look at the
world computes them anew. So the other ends of a node are the bits of one number: a whole side of a
partition is joined or counted at once.
"""

from collections.abc import Set
from heapq import heapify, heappop, heapreplace

from elasticd.records.ids import NodeId
from elasticd.records.world import World
from elasticd.rendezvous.state import JobState

__all__ = ["partitioned_nodes"]


def partitioned_nodes(state: JobState, world: World, well: Set[NodeId]) -> frozenset[NodeId]:
    """Return which of the `well` nodes to leave out of the next world; mostly none."""
    edges = _edges(state, world, well)
    # Degrees only fall, so one that is out of date stands too high up: it is corrected on top.
    heap = [
        (-others.bit_count(), -node.first_rank, place)
        for place, (node, others) in enumerate(zip(world.nodes, edges, strict=True))
        if others
    ]
    heapify(heap)
    here = (1 << len(edges)) - 1
    out: list[int] = []
    while heap:
        known, order, place = heap[0]
        count = (edges[place] & here).bit_count()
        if -count == known:
            out.append(place)
            here ^= 1 << place
            heappop(heap)
        elif count:
            heapreplace(heap, (-count, order, place))
        else:
            heappop(heap)
    return frozenset(world.nodes[place].node for place in out)


def _edges(state: JobState, world: World, well: Set[NodeId]) -> list[int]:
    """Return for each node of the world the places of those at its other ends, as bits."""
    place_of = {n.node: place for place, n in enumerate(world.nodes) if n.node in well}
    # A broken switch makes all nodes on one side of it accuse the same ones: taken together.
    accusers: dict[tuple[NodeId, ...], list[int]] = {}
    for name, place in place_of.items():
        seen = state.members.get(name)
        if seen is None or seen.member.incarnation != world.nodes[place].incarnation:
            continue
        if seen.member.broken == world.generation and seen.member.cut_off:
            accusers.setdefault(seen.member.cut_off, []).append(place)
    edges = [0] * len(world.nodes)
    for names, by in accusers.items():
        accused = [place_of[name] for name in names if name in place_of]
        for side, others in ((accused, _bits(by)), (by, _bits(accused))):
            for each in side:
                edges[each] |= others & ~(1 << each)
    return edges


def _bits(places: list[int]) -> int:
    return sum(1 << place for place in set(places))

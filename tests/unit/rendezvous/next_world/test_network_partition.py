"""Whom a world does without, and what it costs to find that out."""

import dataclasses
from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from elasticd.records.ids import Generation, NodeId
from elasticd.records.world import World
from elasticd.rendezvous.next_world.network_partition import partitioned_nodes
from elasticd.rendezvous.persistent_map import PersistentMap
from elasticd.rendezvous.state import JobState, SeenMember
from tests.unit.rendezvous.cases import Told, member, name, world

LOOKS_PER_EDGE = 8
"""A few for each end that is told; a second loop over the edges would make hundreds."""


class CountedName(str):
    """A name that counts how often it is looked up or compared."""

    looks = 0

    def __hash__(self) -> int:
        CountedName.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        CountedName.looks += 1
        return super().__eq__(other)


def _accusing(accused: Mapping[int, Collection[int]], size: int) -> tuple[JobState, World]:
    """All nodes of generation 1, each accusing these."""
    names = [NodeId(CountedName(name(index))) for index in range(size)]
    found = world(1, *range(size))
    nodes = tuple(
        dataclasses.replace(node, node=names[index]) for index, node in enumerate(found.nodes)
    )
    found = dataclasses.replace(found, nodes=nodes)
    seen = []
    for index in range(size):
        told = dataclasses.replace(
            member(index),
            node=names[index],
            broken=Generation(1),
            cut_off=tuple(names[other] for other in accused.get(index, ())),
        )
        record = SeenMember(member=told, create_revision=1, mod_revision=1, seen_s=0.0)
        seen.append((names[index], record))
    return dataclasses.replace(Told(0).state, members=PersistentMap(seen), world=found), found


def _left_out(accused: Mapping[int, Collection[int]], size: int) -> set[int]:
    state, found = _accusing(accused, size)
    gone = partitioned_nodes(state, found, {node.node for node in found.nodes})
    return {index for index in range(size) if name(index) in gone}


def _plainly(accused: Mapping[int, Collection[int]]) -> set[int]:
    """Say the rule in the plainest way: who is at the most edges goes, of equals the last."""
    edges = {frozenset((a, b)) for a, others in accused.items() for b in others if a != b}
    gone: set[int] = set()
    while edges:
        ends = [end for edge in edges for end in edge]
        worst = max(ends, key=lambda end: (ends.count(end), end))
        gone.add(worst)
        edges = {edge for edge in edges if worst not in edge}
    return gone


@given(st.dictionaries(st.integers(0, 8), st.frozensets(st.integers(0, 8)), max_size=9))
def test_who_is_at_the_most_edges_goes_first(accused: dict[int, frozenset[int]]) -> None:
    """As the rule says it, whoever accuses whom."""
    assert _left_out(accused, 9) == _plainly(accused)


def test_who_is_lost_anyway_accuses_nobody() -> None:
    """Only those that are well count, at either end."""
    state, found = _accusing({0: (1,), 2: (1,)}, 3)
    assert partitioned_nodes(state, found, {name(0), name(2)}) == frozenset()
    assert partitioned_nodes(state, found, {name(0), name(1)}) == {name(1)}


def test_the_work_is_that_of_the_edges() -> None:
    """Two halves that do not reach each other: every pair is an edge, told from both ends."""
    half = 500
    first, second = range(half), range(half, 2 * half)
    accused = {index: second if index in first else first for index in range(2 * half)}
    state, found = _accusing(accused, 2 * half)
    well = {node.node for node in found.nodes}
    CountedName.looks = 0
    gone = partitioned_nodes(state, found, well)
    assert CountedName.looks <= LOOKS_PER_EDGE * half * half
    assert len(gone) == half and name(0) not in gone

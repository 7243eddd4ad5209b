"""How much of a running job's past stays in etcd."""

import dataclasses

from elasticd.records.ids import Generation
from elasticd.records.world import World
from elasticd.rendezvous.history import (
    GENERATIONS_KEPT,
    GENERATIONS_KEPT_LEAST,
    INCIDENTS_KEPT,
    RESULTS_PER_WORLD,
    oldest_kept,
    unneeded_results,
)
from elasticd.rendezvous.persistent_map import PersistentMap
from elasticd.rendezvous.state import replace
from tests.unit.rendezvous.cases import member, name, proposer, result, world


def _of_size(generation: int, nodes: int) -> World:
    return world(generation, *range(nodes))


def test_incidents_of_the_newest_generations_stay() -> None:
    """Fewer of them where each is written by many."""
    assert oldest_kept(_of_size(7, 2)) == 0
    assert oldest_kept(_of_size(1000, 2)) == 1000 - GENERATIONS_KEPT
    assert oldest_kept(_of_size(1000, 1000)) == 1000 - INCIDENTS_KEPT // 1000
    assert oldest_kept(_of_size(1000, 5000)) == 1000 - GENERATIONS_KEPT_LEAST


def test_results_that_no_world_needs_go() -> None:
    """Not of who is here, not of who was in one of the two worlds, and not of these worlds."""
    told = proposer(1)
    told.state = replace(told.state, world=world(5, 0, 1))
    told.members(member(0), member(1), member(4))
    results = [result(i, 4, has_left=True) for i in range(7)] + [result(7, 5)]
    results[6] = dataclasses.replace(results[6], trained_in=Generation(5))
    told.state = replace(told.state, results=PersistentMap((r.node, r) for r in results))
    assert unneeded_results(told.state, world(6, 0, 2)) == (name(3), name(5))
    assert unneeded_results(replace(told.state, world=None), world(1, 0, 2)) == ()


def test_one_world_deletes_no_more_results_than_a_transaction_may_hold() -> None:
    """The next one deletes the next."""
    told = proposer(1)
    told.state = replace(told.state, world=world(5, 0, 1))
    many = [result(i, 2, has_left=True) for i in range(10, 500)]
    told.state = replace(told.state, results=PersistentMap((r.node, r) for r in many))
    gone = unneeded_results(told.state, world(6, 0, 1))
    assert len(gone) == RESULTS_PER_WORLD <= 120

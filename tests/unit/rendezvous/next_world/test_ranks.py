"""Who gets which rank."""

from elasticd.rendezvous.next_world.ranks import natural, order_nodes, with_ranks
from tests.unit.rendezvous.cases import name, world


def test_without_a_world_before_neighbours_by_name_are_neighbours_by_rank() -> None:
    """node-2 comes before node-10."""
    assert order_nodes(None, [name(10), name(2), name(1)], set()) == [name(1), name(2), name(10)]


def test_survivors_keep_their_order() -> None:
    """A lost node in the middle moves nobody past anybody."""
    before = world(1, 3, 1, 2)
    assert order_nodes(before, [name(3), name(2)], {name(3), name(2)}) == [name(3), name(2)]


def test_newcomer_takes_the_place_of_a_lost_node() -> None:
    """A spare does not move everybody."""
    before = world(1, 0, 1, 2)
    chosen = [name(0), name(2), name(9)]
    assert order_nodes(before, chosen, {name(0), name(2)}) == [name(0), name(9), name(2)]


def test_rank_0_stays_with_a_survivor() -> None:
    """It has the state, a newcomer has not."""
    before = world(1, 0, 1, 2)
    chosen = [name(1), name(2), name(9)]
    assert order_nodes(before, chosen, {name(1), name(2)})[0] == name(1)


def test_nobody_of_the_world_before_is_as_if_there_was_none() -> None:
    """Sorted by name again."""
    assert order_nodes(world(1, 0), [name(5), name(4)], set()) == [name(4), name(5)]


def test_ranks_are_contiguous_and_grouped_by_node() -> None:
    """Each node's first rank follows the last one of the node before."""
    ranked = with_ranks(world(1, 2, 0, 1).nodes)
    assert [node.first_rank for node in ranked] == [0, 1, 2]


def test_natural_order_compares_numbers_as_numbers() -> None:
    """And letters as letters, in mixed names too."""
    names = ["gpu10-a", "gpu9-b", "gpu9-a", "a"]
    assert sorted(names, key=natural) == ["a", "gpu9-a", "gpu9-b", "gpu10-a"]  # type: ignore[arg-type]

"""Who brings which share of a snapshot that is in the memory of the nodes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from elasticd.keeper.wire import message as ms
from elasticd.train.restore.held_snapshots import holders_of
from tests.unit.train.restore.restore_case import snapshot_of

SNAPSHOT = snapshot_of(9)


def told_by(nodes: list[list[int]], ranks: int, shares: int) -> list[tuple[int, ms.Held]]:
    """What all ranks tell, where each node has so many of them and these shares in memory."""
    return [
        (node * ranks + turn, ms.Held(snapshot=SNAPSHOT, share=share, shares=shares, holder=node,
                                      nbytes=1))
        for node, held in enumerate(nodes)
        for turn in range(ranks)
        for share in held
    ]  # fmt: skip


def brought(nodes: list[list[int]], ranks: int, shares: int) -> list[int]:
    """The rank that brings each share."""
    found = holders_of(SNAPSHOT, told_by(nodes, ranks, shares))
    assert found is not None
    assert [held.share for _, held in found] == list(range(shares))
    for rank, held in found:
        assert held.holder == rank // ranks and held.share in nodes[rank // ranks]
    return [rank for rank, _ in found]


def test_ranks_of_a_node_bring_its_shares_together() -> None:
    """In their order, so that each brings what it needs itself in the smaller world."""
    assert brought([[0, 1, 2, 3]], ranks=2, shares=4) == [0, 0, 1, 1]


def test_two_nodes_that_are_left_of_three_bring_equal_parts() -> None:
    """The first has its own shares and those of the node that is gone, the second has also a copy
    of the first one's."""
    assert brought([[0, 1, 4, 5], [0, 1, 2, 3]], ranks=2, shares=6) == [0, 0, 2, 2, 1, 1]


def test_what_only_one_node_has_is_spread_over_its_ranks_too() -> None:
    """Though each of them then brings more than its part of the whole."""
    found = Counter(brought([[0, 1, 2, 3, 4, 5], [6, 7]], ranks=2, shares=8))
    assert found[0] == found[1] == 3


@given(st.integers(1, 12), st.integers(1, 4))
def test_where_all_can_bring_all_none_brings_more_than_its_part(shares: int, ranks: int) -> None:
    """In whatever world."""
    found = brought([list(range(shares))] * 2, ranks, shares)
    assert max(Counter(found).values()) <= -(-shares // (2 * ranks))
    assert found == sorted(found)


def test_ranks_that_know_another_snapshot_bring_nothing() -> None:
    """And a share that nobody has is not replaced by one of another step."""
    other = ms.Held(snapshot=snapshot_of(8), share=1, shares=2, holder=0, nbytes=1)
    one = ms.Held(snapshot=SNAPSHOT, share=0, shares=2, holder=0, nbytes=1)
    assert holders_of(SNAPSHOT, [(0, one), (1, other)]) is None
    whole = [(0, one), (1, other), (2, other), (2, ms.Held(snapshot=SNAPSHOT, share=1, shares=2,
                                                           holder=0, nbytes=1))]  # fmt: skip
    found = holders_of(SNAPSHOT, whole)
    assert found is not None and [rank for rank, _ in found] == [0, 2]

"""What each rank reads and is sent of a sharded state: its own part, each element once."""

from itertools import product
from typing import NamedTuple

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.checkpoint.format.manifest import Manifest, Part, Piece, Tensor
from elasticd.checkpoint.format.piece_rows import PieceRows
from elasticd.tensors.local_shard import LocalShard
from elasticd.train.restore.stored_checkpoint import StoredCheckpoint
from elasticd.train.shards.shard_exchange import ShardBox, compact, packed, spread_of, turns_of
from tests.unit.checkpoint.records import header

TENSORS = (Tensor("w", "float32", (12, 5)), Tensor("b", "uint8", (7,)), Tensor("n", "int64", ()))


class FakeGroup(NamedTuple):
    rank: int
    size: int


def boxes(tensor: int) -> st.SearchStrategy[ShardBox]:
    """Any box of a tensor, empty ones too."""
    edges = [
        st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted)
        for size in TENSORS[tensor].shape
    ]
    return st.tuples(*edges).map(
        lambda found: ShardBox(tuple(a for a, _ in found), tuple(b - a for a, b in found))
    )


def elements(box: ShardBox) -> list[tuple[int, ...]]:
    rows = zip(box.offsets, box.shape, strict=True)
    return list(product(*(range(first, first + size) for first, size in rows)))


HELD = st.tuples(*(boxes(index) for index in range(len(TENSORS))))
GIVEN = st.lists(
    st.integers(0, len(TENSORS) - 1).flatmap(lambda t: boxes(t).map(lambda box: (t, box)))
)


@settings(deadline=None)
@given(given_=GIVEN, held=HELD, limit=st.integers(1, 300))
def test_rank_is_sent_what_it_holds_and_nothing_else(
    given_: list[tuple[int, ShardBox]], held: tuple[ShardBox, ...], limit: int
) -> None:
    """Each element of each piece that it holds, once; no turn is larger than the limit, unless a
    single row is."""
    turns = turns_of(given_, held, TENSORS, limit)
    sent = sorted(
        (unit.source, each) for units in turns for unit in units for each in elements(unit.box)
    )
    wanted = sorted(
        (source, each)
        for source, (tensor, box) in enumerate(given_)
        for each in set(elements(box)) & set(elements(held[tensor]))
    )
    assert sent == wanted
    for units in turns:
        assert units
        size = sum(-(-unit.nbytes // 16) * 16 for unit in units)
        assert size <= limit or len(units) == 1
        assert all(unit.nbytes <= limit or unit.box.shape[:1] in ((), (1,)) for unit in units)


def test_tensor_is_spread_if_a_rank_lacks_some_of_it() -> None:
    """All ranks see it alike, since each knows what all hold."""
    every = [ShardBox((0, 0), (12, 5)), ShardBox((0,), (7,)), ShardBox((), ())]
    half = [ShardBox((6, 0), (6, 5)), *every[1:]]
    assert spread_of(TENSORS, [every, every]) == [False, False, False]
    assert spread_of(TENSORS, [every, half]) == [True, False, False]


def manifest(count: int) -> Manifest:
    """Saved by so many ranks: rows of `w`, and all else from the first."""
    rows = TENSORS[0].shape[0] // count
    cut = [Piece(0, (rows * i, 0), (rows, 5), i, 0) for i in range(count)]
    rest = [Piece(1, (0,), (7,), 0, 500), Piece(2, (), (), 0, 512)]
    parts = tuple(Part(f"{i:05d}-0-0123abcd-00000.bin", 600, ("0" * 16,)) for i in range(count))
    return Manifest(header=header(count), parts=parts, pieces=(*cut, *rest))


def test_stored_rows_are_read_by_who_holds_them() -> None:
    """Of what is sharded each rank reads its own; of the rest one reads for all."""
    of_four = StoredCheckpoint(7, manifest(4))
    owned: list[PieceRows] = []
    alike: list[PieceRows] = []
    for rank in range(4):
        here = [
            LocalShard(torch.zeros(3, 5), (3 * rank, 0), is_plain_tensor=False, is_first=True),
            LocalShard(torch.zeros(7), (0,), is_plain_tensor=True, is_first=True),
            LocalShard(torch.zeros(()), (), is_plain_tensor=True, is_first=True),
        ]
        for_all, own = of_four.divided(FakeGroup(rank, 4), here, [True, False, False])
        assert own == [PieceRows(rank, 0, 3)]
        owned += own
        alike += for_all
        # Other ranks than it was saved by: each reads its own rows, and no others.
        _, own = StoredCheckpoint(7, manifest(3)).divided(
            FakeGroup(rank, 4), here, [True, False, False]
        )
        rows = [4 * each.piece + each.first + row for each in own for row in range(each.count)]
        assert rows == [3 * rank, 3 * rank + 1, 3 * rank + 2]
    assert owned == [PieceRows(rank, 0, 3) for rank in range(4)]
    assert alike == [PieceRows(4, 0, 7), PieceRows(5, 0, 1)]


def test_load_is_parted_without_a_copy_where_that_can_be() -> None:
    """Sharded bytes are never copied; those for all only if they stand between others."""
    memory = memoryview(bytearray(range(80)))
    pieces = [Piece(1, (0,), (7,), 0, 0), Piece(0, (0, 0), (2, 5), 0, 0), Piece(2, (), (), 0, 0)]
    load = memory, pieces, [0, 16, 64]
    (own, alike, starts), sharded = packed(load, TENSORS, [True, False, False])
    assert [bytes(own[at : at + 7]) for at in starts] == [bytes(memory[0:7]), bytes(memory[64:71])]
    assert alike == [pieces[0], pieces[2]] and sharded == (memory, [pieces[1]], [16])
    assert packed(load, TENSORS, [False] * 3)[0] == (memory, pieces, [0, 16, 64])
    nothing, every = packed(load, TENSORS, [True] * 3)
    assert not nothing[0] and not nothing[1] and every == load
    wide = memoryview(bytearray(8 << 20)), pieces[:1], [5 << 20]
    assert len(compact(wide, TENSORS)[0]) == 16, "of a block that was read for a few bytes"

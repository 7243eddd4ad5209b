"""Shares are equal, leave nothing out, and lie in memory so that any type can be read in place."""

from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.checkpoint.format import share_layout
from elasticd.checkpoint.format.box_cover import uncovered
from elasticd.checkpoint.format.manifest import DTYPE_BYTES, Tensor
from elasticd.checkpoint.format.share_layout import (
    ALIGNMENT,
    CUT_BYTES,
    PART_BYTES,
    Slab,
    laid_out,
    shares,
)

SHAPES = st.one_of(
    st.lists(st.integers(0, 9), max_size=4),
    st.lists(st.integers(1, 2000), min_size=1, max_size=2),
    st.tuples(st.just(1), st.integers(1, 60_000_000)).map(list),
    st.tuples(st.integers(1, 3), st.integers(1, 50_000_000)).map(list),
    st.tuples(st.just(1), st.just(1), st.integers(1, 5), st.integers(1, 9_000_000)).map(list),
)
STATES = st.lists(
    st.tuples(SHAPES, st.sampled_from(sorted(DTYPE_BYTES)), st.booleans()), max_size=8
)


def state(drawn: list[tuple[list[int], str, bool]]) -> tuple[list[Tensor], list[bool]]:
    tensors = [
        Tensor(str(number), dtype, tuple(shape)) for number, (shape, dtype, _) in enumerate(drawn)
    ]
    return tensors, [alike for _, _, alike in drawn]


def nbytes(tensors: list[Tensor], slab: Slab) -> int:
    return prod(slab.shape) * DTYPE_BYTES[tensors[slab.tensor].dtype]


def largest_row(tensors: list[Tensor]) -> int:
    """Bytes of the largest thing that is not cut between shares."""
    found = [CUT_BYTES]
    for each in tensors:
        rows = next((size for size in each.shape if size != 1), 1)
        found.append(each.nbytes // max(1, rows))
    return max(found)


@given(STATES, st.integers(1, 9))
def test_shares_cover_every_element_exactly_once(
    drawn: list[tuple[list[int], str, bool]], count: int
) -> None:
    """Of every tensor, also of one without elements or without dimensions."""
    tensors, is_replicated = state(drawn)
    found = shares(tensors, is_replicated, count)
    assert len(found) == count
    for index, tensor in enumerate(tensors):
        boxes = [(s.offsets, s.shape) for share in found for s in share if s.tensor == index]
        assert boxes, "even an empty tensor is named"
        assert uncovered(tensor.shape, boxes) == ""


@given(STATES, st.integers(1, 9))
def test_what_differs_between_ranks_is_in_the_first_share(
    drawn: list[tuple[list[int], str, bool]], count: int
) -> None:
    """As a whole, so that it is one rank's."""
    tensors, is_replicated = state(drawn)
    found = shares(tensors, is_replicated, count)
    for index, alike in enumerate(is_replicated):
        if not alike:
            slab = Slab(index, (0,) * len(tensors[index].shape), tensors[index].shape)
            assert slab in found[0]
            assert all(each.tensor != index for share in found[1:] for each in share)


@given(STATES, st.integers(1, 9))
def test_no_share_is_larger_than_its_part_of_the_bytes_and_a_row(
    drawn: list[tuple[list[int], str, bool]], count: int
) -> None:
    """To write the state takes each of n ranks an n-th of the time."""
    tensors, is_replicated = state(drawn)
    found = shares(tensors, is_replicated, count)
    total = sum(each.nbytes for each in tensors)
    own = sum(each.nbytes for each, alike in zip(tensors, is_replicated, strict=True) if not alike)
    sizes = [sum(nbytes(tensors, slab) for slab in share) for share in found]
    assert sum(sizes) == total
    fair = total / count
    assert sizes[0] <= max(own, fair) + largest_row(tensors)
    for size in sizes[1:]:
        assert size <= fair + largest_row(tensors) + 1


@settings(max_examples=50, deadline=None)
@given(STATES, st.integers(1, 4))
def test_layout_keeps_every_element_and_aligns_every_piece(
    drawn: list[tuple[list[int], str, bool]], count: int
) -> None:
    """Parts are at most 64 MiB, do not overlap, and hold their pieces."""
    tensors, is_replicated = state(drawn)
    boxes: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = [[] for _ in tensors]
    for share in shares(tensors, is_replicated, count):
        layout = laid_out(tensors, share)
        ends = 0
        for start, size in layout.parts:
            assert start % ALIGNMENT == 0 and start >= ends and size <= PART_BYTES
            ends = start + size
        assert layout.size == ends
        filled = 0
        for piece, start in zip(layout.pieces, layout.starts(), strict=True):
            size = prod(piece.shape) * DTYPE_BYTES[tensors[piece.tensor].dtype]
            assert piece.at % ALIGNMENT == 0 and start % ALIGNMENT == 0
            assert piece.at + size <= layout.parts[piece.part][1]
            assert start >= filled, "pieces lie one behind the other"
            filled = start + size
            boxes[piece.tensor].append((piece.offsets, piece.shape))
    for tensor, held in zip(tensors, boxes, strict=True):
        assert uncovered(tensor.shape, held) == ""


def test_row_larger_than_a_part_is_cut_further() -> None:
    """So every object is one request of at most 64 MiB, whatever the shape."""
    tensors = [Tensor("t", "float32", (1, 3, PART_BYTES // 2))]
    (share,) = shares(tensors, [True], 1)
    layout = laid_out(tensors, share)
    assert max(size for _, size in layout.parts) <= PART_BYTES
    assert len(layout.parts) == 6


def test_consecutive_elements_stay_consecutive() -> None:
    """A piece is copied as one run of bytes: only the dimension of its rows is cut."""
    tensors = [Tensor("t", "uint8", (1, 8, 3 * share_layout.CUT_BYTES))]
    for share in shares(tensors, [True], 4):
        for slab in share:
            assert slab.offsets[0] == 0 and slab.offsets[2] == 0
            assert slab.shape[0] == 1 and slab.shape[2] == 3 * share_layout.CUT_BYTES


def test_empty_state_is_one_empty_part() -> None:
    """Nothing to save is a checkpoint too."""
    assert shares([], [], 3) == [[], [], []]
    layout = laid_out([], [])
    assert (layout.size, layout.parts, layout.pieces) == (0, ((0, 0),), ())

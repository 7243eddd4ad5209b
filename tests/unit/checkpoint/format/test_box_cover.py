"""Whether boxes fill a tensor exactly, against counting every element."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.format import box_cover
from elasticd.checkpoint.format.box_cover import Box, uncovered

SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def boxes_in(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Box]]:
    """A shape, and boxes that lie in it; often a grid that fills it, with something changed."""
    shape = draw(SHAPES)
    cuts = [sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=2))}) for size in shape]
    spans = [list(pairwise(each)) or [(0, 0)] for each in cuts]
    found: list[Box] = [
        (tuple(a for a, _ in cell), tuple(b - a for a, b in cell)) for cell in product(*spans)
    ]
    found = draw(st.permutations(found))
    if draw(st.booleans()) and found:
        found[0] = found[-1]
    if draw(st.booleans()) and found:
        size = found[0][1]
        room = [draw(st.integers(0, n - s)) for n, s in zip(shape, size, strict=True)]
        found[0] = (tuple(room), size)
    return shape, found


@given(boxes_in())
def test_answer_is_that_of_counting(drawn: tuple[tuple[int, ...], list[Box]]) -> None:
    """Every element once is whole; a gap or a doubled element is not."""
    shape, boxes = drawn
    counted = np.zeros(shape, dtype=int)
    for offsets, size in boxes:
        counted[tuple(slice(o, o + s) for o, s in zip(offsets, size, strict=True))] += 1
    assert (uncovered(shape, boxes) == "") == bool((counted == 1).all())


def test_reason_is_said() -> None:
    """One for each rule."""
    assert "dimensions" in uncovered((4,), [((0, 0), (4, 1))])
    assert "beyond" in uncovered((4,), [((1,), (4,))])
    assert "4 elements, and the pieces 3" in uncovered((4,), [((0,), (3,))])
    assert "in common" in uncovered((4,), [((0,), (2,)), ((1,), (2,))])
    assert "in common" in uncovered((2, 2), [((0, 0), (2, 1)), ((0, 0), (1, 2))])


def test_scalar_is_covered_by_one_piece() -> None:
    """It has an element without having a dimension."""
    assert uncovered((), [((), ())]) == ""
    assert uncovered((), []) != ""
    assert uncovered((), [((), ()), ((), ())]) != ""


def test_many_slabs_are_checked_along_whatever_dimension_they_were_cut() -> None:
    """A tensor whose first dimension is one is cut along the second; that is no reason to compare
    each with each."""
    count = 20_000
    for shape, along in (((count, 1), 0), ((1, count), 1), ((3, 1, count), 2)):
        boxes = []
        for index in range(count):
            offsets, size = [0] * len(shape), list(shape)
            offsets[along], size[along] = index, 1
            boxes.append((tuple(offsets), tuple(size)))
        assert uncovered(shape, boxes) == ""


def test_pieces_made_to_be_compared_for_ever_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid as fine in both dimensions is no plan of ours."""
    side = 60
    boxes = [((a, b), (1, 1)) for a in range(side) for b in range(side)]
    assert uncovered((side, side), boxes) == ""
    monkeypatch.setattr(box_cover, "COMPARED_LIMIT", 1000)
    assert "too many ways" in uncovered((side, side), boxes)

"""Whether boxes fill a tensor exactly: nothing is missing, nothing is there twice. Pure."""

from collections.abc import Sequence
from math import prod

__all__ = ["Box", "uncovered"]

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""The offsets of the first element and the shape, both in elements."""

COMPARED_LIMIT = 10_000_000
"""How many pairs of boxes are compared for one tensor, which takes a few seconds. An honest plan
needs one for each piece; more were made to keep us busy."""


def uncovered(shape: tuple[int, ...], boxes: Sequence[Box]) -> str:
    """Return why the boxes do not fill the tensor; an empty text if they fill it.

    The boxes fill it if none reaches beyond the tensor, no two share an element, and the counts
    agree.
    """
    for offsets, size in boxes:
        if len(offsets) != len(shape) or len(size) != len(shape):
            return "a piece has other dimensions"
        if any(o + s > most for o, s, most in zip(offsets, size, shape, strict=True)):
            return "a piece reaches beyond its end"
    count = sum(prod(size) for _, size in boxes)
    if count != prod(shape):
        return f"it has {prod(shape)} elements, and the pieces {count}"
    return _overlapping([box for box in boxes if prod(box[1])], len(shape))


def _overlapping(boxes: Sequence[Box], dimensions: int) -> str:
    """Sweep along the dimension that was cut most: pieces are slabs of it, so few are open at once.

    Return why the boxes overlap; empty if they do not.
    """
    if not dimensions:
        return "" if len(boxes) < 2 else "two pieces have elements in common"
    along = max(range(dimensions), key=lambda axis: len({box[0][axis] for box in boxes}))
    active: list[Box] = []
    compared = 0
    for box in sorted(boxes, key=lambda box: box[0][along]):
        active = [each for each in active if each[0][along] + each[1][along] > box[0][along]]
        compared += len(active)
        if compared > COMPARED_LIMIT:
            return "its pieces are cut in too many ways"
        if any(_meet(each, box) for each in active):
            return "two pieces have elements in common"
        active.append(box)
    return ""


def _meet(one: Box, other: Box) -> bool:
    return all(
        a < b + t and b < a + s
        for a, s, b, t in zip(one[0], one[1], other[0], other[1], strict=True)
    )

"""Whether boxes fill a tensor exactly: nothing left out, nothing twice. Pure."""

from collections.abc import Sequence
from math import prod

__all__ = ["Box", "uncovered"]

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets of the first element, and shape."""


def uncovered(shape: tuple[int, ...], boxes: Sequence[Box]) -> str:
    """Say why the boxes are not the whole; empty if they are.

    They are if none leaves the tensor, no two share an element, and the counts agree.
    """
    for offsets, size in boxes:
        if len(offsets) != len(shape) or len(size) != len(shape):
            return "a piece has other dimensions"
        if any(o + s > most for o, s, most in zip(offsets, size, shape, strict=True)):
            return "a piece reaches beyond its end"
    count = sum(prod(size) for _, size in boxes)
    if count != prod(shape):
        return f"it has {prod(shape)} elements, and the pieces {count}"
    if _overlap([box for box in boxes if prod(box[1])]):
        return "two pieces have elements in common"
    return ""


def _overlap(boxes: Sequence[Box]) -> bool:
    """Sweep along the first dimension; pieces are mostly slabs of it, so few are open at once."""
    ordered = sorted(boxes, key=lambda box: box[0][:1])
    active: list[Box] = []
    for box in ordered:
        active = [each for each in active if _end(each) > _start(box)]
        if any(_meet(each, box) for each in active):
            return True
        active.append(box)
    return False


def _start(box: Box) -> int:
    return box[0][0] if box[0] else 0


def _end(box: Box) -> int:
    return box[0][0] + box[1][0] if box[0] else 1


def _meet(one: Box, other: Box) -> bool:
    return all(
        a < b + t and b < a + s
        for a, s, b, t in zip(one[0], one[1], other[0], other[1], strict=True)
    )

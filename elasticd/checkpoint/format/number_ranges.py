"""Many ascending numbers in little room: ranges with a step, in memory and in JSON. Pure.

Every entry of the log says which checkpoints are kept. As a plain list that would grow with the
square of their number. But jobs that keep many keep all of them, or every n-th, and these are a
handful of ranges.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

from elasticd.checkpoint.format.json_read import Damaged, check_integer

__all__ = ["NumberRanges"]


class NumberRanges(Sequence[int]):
    """An immutable sequence of numbers; equal to any sequence of the same numbers."""

    __slots__ = ("_ends", "_ranges")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """Take numbers that ascend."""
        if isinstance(numbers, NumberRanges):
            self._ranges: tuple[range, ...] = numbers._ranges
            self._ends: tuple[int, ...] = numbers._ends
            return
        ranges: list[range] = []
        for each in numbers:
            _append(ranges, each)
        self._set(ranges)

    def plus(self, number: int) -> "NumberRanges":
        """Return these numbers and `number`, which is above all of them."""
        ranges = list(self._ranges)
        _append(ranges, number)
        return _of(ranges)

    def rows(self) -> list[int | list[int]]:
        """The rows for JSON: a number, or `[first, last, step]` of three and more."""
        found: list[int | list[int]] = []
        for each in self._ranges:
            found += [[each[0], each[-1], each.step]] if len(each) > 2 else list(each)
        return found

    @classmethod
    def from_rows(cls, name: str, rows: Sequence[Any], most: int, count: int) -> "NumberRanges":
        """Read what `rows` wrote, or a plain list: numbers from 1 to `most`, and at most so many.

        Raises: Damaged: the value is no such list, or its numbers do not ascend.
        """
        ranges = [_range(name, row, most) for row in rows]
        if sum(map(len, ranges)) > count:
            raise Damaged(f"{name} has more than {count} numbers.")
        if any(one[-1] >= other[0] for one, other in pairwise(ranges)):
            raise Damaged(f"{name} does not ascend.")
        # Single numbers of a plain list may make ranges; what are ranges already stays so.
        merged: list[range] = []
        for each in ranges:
            if len(each) == 1:
                _append(merged, each[0])
            else:
                merged.append(each)
        return _of(merged)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[int]:
        for each in self._ranges:
            yield from each

    def __reversed__(self) -> Iterator[int]:
        for each in reversed(self._ranges):
            yield from reversed(each)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        at = bisect_right(self._ranges, number, key=lambda each: each[0])
        return at > 0 and number in self._ranges[at - 1]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> "NumberRanges": ...
    def __getitem__(self, index: int | slice) -> "int | NumberRanges":
        if isinstance(index, slice):
            return NumberRanges(tuple(self)[index])
        wanted = index + len(self) if index < 0 else index
        if not 0 <= wanted < len(self):
            raise IndexError(index)
        at = bisect_right(self._ends, wanted)
        return self._ranges[at][wanted - (self._ends[at - 1] if at else 0)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        if isinstance(other, NumberRanges) and self._ranges == other._ranges:
            return True
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash((len(self), self[0], self[-1]) if self else ())

    def __repr__(self) -> str:
        return f"NumberRanges({self.rows()})"

    def _set(self, ranges: Sequence[range]) -> None:
        self._ranges = tuple(ranges)
        ends, end = [], 0
        for each in ranges:
            end += len(each)
            ends.append(end)
        self._ends = tuple(ends)


def _of(ranges: Sequence[range]) -> NumberRanges:
    made = NumberRanges()
    made._set(ranges)
    return made


def _append(ranges: list[range], number: int) -> None:
    last = ranges[-1] if ranges else None
    if last is not None and number <= last[-1]:
        raise ValueError(f"{number} is not above {last[-1]}")
    if last is not None and len(last) == 1:
        ranges[-1] = range(last[0], number + 1, number - last[0])
    elif last is not None and number == last[-1] + last.step:
        ranges[-1] = range(last[0], number + 1, last.step)
    else:
        ranges.append(range(number, number + 1))


def _range(name: str, row: Any, most: int) -> range:
    if not isinstance(row, list):
        check_integer(name, row, most, least=1)
        return range(row, row + 1)
    if len(row) != 3:
        raise Damaged(f"{name} has a row that is no list of first, last and step.")
    first, last, step = row
    check_integer(name, first, most, least=1)
    check_integer(name, last, most, least=first)
    check_integer(name, step, most, least=1)
    if (last - first) % step:
        raise Damaged(f"{name} has a range from {first} to {last} that steps of {step} do not end.")
    return range(first, last + 1, step)

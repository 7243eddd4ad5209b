"""Ascending numbers as ranges: the same numbers, in less room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.number_ranges import NumberRanges

NUMBERS = st.sets(st.integers(1, 60)).map(sorted)


@given(NUMBERS)
def test_ranges_are_the_numbers_that_they_were_made_of(numbers: list[int]) -> None:
    """In both directions, by index, and by membership; to JSON and back."""
    made = NumberRanges(numbers)
    assert list(made) == numbers and made == numbers and len(made) == len(numbers)
    assert list(reversed(made)) == numbers[::-1]
    assert [made[at] for at in range(-len(numbers), len(numbers))] == numbers * 2
    assert [each for each in range(70) if each in made] == numbers
    read = NumberRanges.from_rows("kept", made.rows(), 60, 60)
    assert read == made and hash(read) == hash(made) and read.rows() == made.rows()
    assert NumberRanges.from_rows("kept", numbers, 60, 60) == made, "a plain list, as before"


@given(NUMBERS)
def test_one_more_is_as_if_made_of_all(numbers: list[int]) -> None:
    """However it was built, it is written alike."""
    made = NumberRanges()
    for each in numbers:
        made = made.plus(each)
    assert made.rows() == NumberRanges(numbers).rows()
    with pytest.raises(ValueError, match="is not above"):
        made.plus(61).plus(61)


@pytest.mark.parametrize(
    ("numbers", "rows"),
    [
        (range(1, 1_000_001), [[1, 1_000_000, 1]]),
        (range(7, 1_000_001, 2), [[7, 999_999, 2]]),
        ([1, 2, 3, 5, 6, 7, 9], [[1, 3, 1], [5, 7, 1], 9]),
        ([1, 5], [1, 5]),
        ([], []),
    ],
    ids=lambda each: str(each)[:30],
)
def test_what_is_kept_in_a_row_is_three_numbers(numbers: list[int], rows: list[object]) -> None:
    """All, or every second because an entry that gives some up stands between."""
    assert NumberRanges(numbers).rows() == rows


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 5]], [[1, 5, 1, 1]], [["1", 5, 1]], [[0, 5, 1]], [[5, 4, 1]], [[1, 5, 0]],
        [[1, 5, 3]], [[1, 101, 1]], [[1, 5, 1], 5], [[1, 5, 1], [4, 6, 1]], [2, 1], [1, 1], [True],
        [[1, 5, True]], [[1, 99, 1]], [None], [{}],
    ],
    ids=str,
)  # fmt: skip
def test_rows_that_are_none_are_damaged(rows: list[object]) -> None:
    """Of other lengths, beyond the limits, or not ascending."""
    with pytest.raises(Damaged):
        NumberRanges.from_rows("kept", rows, 100, 98)

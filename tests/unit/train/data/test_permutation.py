"""Permutation: a bijection, the same one by one and in blocks, that looks like a shuffle."""

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.train.data.permutation import Permutation


def test_it_is_a_bijection_for_each_small_length() -> None:
    """Whatever the shape of the two halves: 0, 1, primes, squares, powers of two."""
    for length in range(301):
        order = Permutation(length, seed=7, epoch=length % 5)
        assert sorted(order.block(0, length)) == list(range(length))


@settings(max_examples=25, deadline=None)
@given(length=st.integers(301, 30_000), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 99))
def test_it_is_a_bijection_for_larger_lengths(length: int, seed: int, epoch: int) -> None:
    """Any seed will do, negative and huge ones included."""
    indices = torch.tensor(Permutation(length, seed, epoch).block(0, length))
    assert torch.equal(indices.sort().values, torch.arange(length))


@settings(max_examples=100, deadline=None)
@given(length=st.integers(1, 2**62), seed=st.integers(), data=st.data())
def test_one_by_one_and_in_blocks_are_the_same_order(
    length: int, seed: int, data: st.DataObject
) -> None:
    """The scalar arithmetic wraps exactly as int64 does."""
    order = Permutation(length, seed, epoch=3)
    start = data.draw(st.integers(0, length - 1))
    stop = min(start + 20, length)
    block = order.block(start, stop)
    assert block == [order[i] for i in range(start, stop)]
    assert all(0 <= index < length for index in block)
    assert len(set(block)) == len(block)


@pytest.mark.parametrize("length", [10, 1000, 10**6, 10**12])
def test_other_seeds_and_epochs_give_unrelated_orders(length: int) -> None:
    """Two uniform orders agree at one position on average, and no distance between them recurs."""
    sample = min(length, 1000)
    orders = [
        Permutation(length, seed, epoch).block(0, sample)
        for seed, epoch in itertools.product((0, 1, 2**40), (0, 1, 2))
    ]
    for one, other in itertools.combinations(orders, 2):
        distances = Counter((a - b) % length for a, b in zip(one, other, strict=True))
        assert max(distances.values()) <= 9


def test_neighbours_do_not_stay_neighbours() -> None:
    """At most a handful of 10,000, and no one distance between successors stands out."""
    order = Permutation(10_000, seed=0, epoch=0).block(0, 10_000)
    steps = Counter((b - a) % 10_000 for a, b in itertools.pairwise(order))
    assert steps[1] + steps[9_999] <= 12
    assert max(steps.values()) <= 12


def _chi_square(counts: Counter[object], cells: int) -> float:
    """Return how many standard deviations the statistic lies from what is expected."""
    total = sum(counts.values())
    expected = total / cells
    statistic = sum((n - expected) ** 2 / expected for n in counts.values())
    statistic += (cells - len(counts)) * expected
    return (statistic - (cells - 1)) / math.sqrt(2 * (cells - 1))


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6, 7])
def test_each_order_of_a_short_length_is_equally_likely(length: int) -> None:
    """Counted over epochs: all of the length! orders, at their fair share."""
    cells = math.factorial(length)
    orders: Counter[object] = Counter()
    for epoch in range(max(600, cells)):
        order = Permutation(length, seed=1, epoch=epoch)
        orders[tuple(order[i] for i in range(length))] += 1
    assert abs(_chi_square(orders, cells)) < 5


def test_a_batch_is_a_fair_draw_from_the_whole() -> None:
    """Over epochs, each first pair of batches falls evenly into 16 x 16 parts of the data."""
    length = 10**9
    cells: Counter[object] = Counter()
    for epoch in range(60):
        parts = [i * 16 // length for i in Permutation(length, seed=5, epoch=epoch).block(0, 512)]
        cells.update(itertools.pairwise(parts))
    assert abs(_chi_square(cells, 256)) < 5


def test_what_lies_outside_is_an_index_error() -> None:
    """As for any sequence; also at length 0."""
    order = Permutation(5, seed=0, epoch=0)
    for position in (-1, 5):
        with pytest.raises(IndexError):
            order[position]
    with pytest.raises(IndexError):
        order.block(3, 6)
    with pytest.raises(IndexError):
        Permutation(0, seed=0, epoch=0)[0]
    assert order.block(5, 5) == []
    with pytest.raises(ValueError, match="not -1"):
        Permutation(-1, seed=0, epoch=0)

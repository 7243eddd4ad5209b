"""Share: sizes differ by one at most, and the weights make the mean exact."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.errors import CallError
from tests.unit.train.loader_case import Numbers, world_of


@given(
    length=st.integers(1, 40),
    batch_size=st.integers(1, 20),
    size=st.integers(1, 20),
    values=st.lists(st.integers(-9, 9), min_size=40, max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_weights_make_the_mean_over_ranks_the_mean_of_the_batch(
    length: int, batch_size: int, size: int, values: list[int]
) -> None:
    """In exact fractions, for whole batches and for tails; shares differ by one at most."""
    size = min(size, batch_size)
    loaders = world_of(Numbers(length), batch_size, size)
    for number, batches in enumerate(zip(*loaders, strict=True)):
        total = min(batch_size, length - number * batch_size)
        weights = [Fraction(loader.weight).limit_denominator(1000) for loader in loaders]
        shares = [len(b) if w else 0 for b, w in zip(batches, weights, strict=True)]
        assert sum(shares) == total and max(shares) - min(shares) <= 1
        assert all(len(batch) >= 1 for batch in batches)
        means = [Fraction(sum(values[i] for i in b), len(b)) for b in batches]
        mean = sum((w * m for w, m in zip(weights, means, strict=True)), Fraction()) / size
        counted = [i for b, w in zip(batches, weights, strict=True) if w for i in b]
        assert mean == Fraction(sum(values[i] for i in counted), total)


def test_weight_of_takes_counts_of_anything() -> None:
    """Tokens: the mean over ranks of weight * local mean is the mean over all tokens."""
    loaders = world_of(Numbers(5), 4, 2, shuffle=False)
    for loader in loaders:
        next(iter(loader))
    assert [loader.weight_of(n, 40) for loader, n in zip(loaders, (30, 10), strict=True)] == [
        1.5,
        0.5,
    ]
    assert loaders[0].weight_of(0, 0) == 0.0
    for loader in loaders:
        next(iter(loader))
    assert [loader.weight for loader in loaders] == [2.0, 0.0]
    assert loaders[1].weight_of(7, 5) == 0.0  # a repeat: whatever it holds does not count
    with pytest.raises(CallError, match="weight_of"):
        loaders[0].weight_of(7, 5)

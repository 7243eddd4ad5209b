"""Share: sizes differ by one at most, and the weights make the mean exact."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.errors import CallError
from elasticd.train.data.batch_share import EpochBatches
from elasticd.train.state.state import State, core_of
from tests.unit.train.data.loader_case import Numbers, loader_of, world_of
from tests.unit.train.state.state_case import FakeWatch, world


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


def course(rank: int, size: int, length: int, *, shuffle: bool) -> EpochBatches:
    """Batches of 8 for a model that takes no single sample."""
    return EpochBatches(
        length=length, batch_size=8, shuffle=shuffle, seed=1, drop_last=False, epoch=0,
        rank=rank, size=size, least=2,
    )  # fmt: skip


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("tail", range(1, 8))
def test_nobody_gets_a_single_sample_of_a_tail(tail: int, size: int, shuffle: bool) -> None:
    """Each counts once; a tail of one is given twice to one rank, and its mean is the same."""
    counted: list[int] = []
    for rank in range(size):
        one = course(rank, size, 8 + tail, shuffle=shuffle)
        share = one.share(8)
        assert share is not None
        first, last = one.indices(0)
        assert len(last) >= 2 and len(first) >= 1
        assert last == next(one.indices(8))
        if share.weight:
            counted += sorted(set(last))
            assert share.weight == len(set(last)) * size / tail
            assert len(last) == len(set(last)) * (2 if tail == 1 else 1)
        whole = course(0, 1, 8 + tail, shuffle=shuffle)
        everything = [index for indices in whole.indices(0) for index in indices]
        assert set(last) <= set(everything[8:])
    assert sorted(counted) == sorted(set(everything[8:]))


def test_model_with_batchnorm_trains_on_the_tail_at_every_world_size() -> None:
    """What trains alone ends no job when a node joins; a model without it shares as before."""
    norm = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.BatchNorm1d(4))
    for module, wanted in ((norm, [3, 2, 2]), (torch.nn.Linear(1, 4), [1, 1, 1])):
        found = []
        for rank in range(3):
            loader = loader_of(Numbers(11), 8)
            state = State(model=module, data=loader)
            core_of(state).enter(world(rank, 3), FakeWatch())
            *_, tail = loader
            module(torch.tensor([[float(each)] for each in tail]))
            found.append(len(tail))
            core_of(state).leave()
        assert found == wanted

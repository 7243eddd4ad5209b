"""How the values of a tensor are distributed: right for any dtype, or refused with a sentence."""

from typing import Any

import numpy as np
import pytest
import torch

from elasticd.errors import CallError
from elasticd.tensorboard.event import Histogram
from elasticd.tensorboard.histogram import BINS, LENGTH, histogram_of, not_finite
from elasticd.train.scalars import histogram as module
from elasticd.train.scalars.histogram import check_histograms, counted


def made(tensor: torch.Tensor) -> Histogram:
    found = histogram_of(counted(tensor).tolist())
    assert found is not None
    return found


@pytest.mark.parametrize("part", [1 << 24, 100])
def test_counts_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """However many parts a tensor is looked at in."""
    monkeypatch.setattr(module, "PART_ELEMENTS", part)
    values = torch.randn(7, 211, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = made(values)
    counts, edges = np.histogram(values.numpy(), bins=BINS)
    assert list(found.counts) == counts.tolist()
    assert np.allclose(found.limits, edges[1:])
    assert (found.least, found.greatest) == (values.min().item(), values.max().item())
    assert found.count == values.numel()
    assert found.total == pytest.approx(values.sum().item())
    assert found.total_of_squares == pytest.approx(values.square().sum().item())


DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_dtype_is_counted(dtype: torch.dtype) -> None:
    """Also one in which torch can compute nothing."""
    found = made(torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0]).to(dtype))
    assert (found.counts[0], found.counts[-1], sum(found.counts)) == (2.0, 3.0, 5.0)
    assert (found.least, found.greatest, found.total) == (0.0, 1.0, 3.0)


def test_what_is_not_finite_is_counted_apart() -> None:
    """The others are shown."""
    values = torch.tensor([1.0, float("nan"), 2.0, float("inf"), -float("inf"), 3.0])
    found = made(values)
    assert (found.count, found.least, found.greatest, sum(found.counts)) == (3.0, 1.0, 3.0, 3.0)
    assert not_finite(counted(values).tolist()) == 3.0


def test_nothing_finite_is_no_histogram() -> None:
    """Nor is an empty tensor."""
    for values in (torch.full((4,), float("nan")), torch.empty(0), torch.empty(3, 0)):
        numbers = counted(values).tolist()
        assert len(numbers) == LENGTH
        assert histogram_of(numbers) is None
        assert not_finite(numbers) == values.numel()


@pytest.mark.parametrize("value", [0.0, -3.5, 1e38, 1e-45])
def test_one_value_is_one_bar(value: float) -> None:
    """All of the same value, and a single number."""
    for shape in ((), (5,), (2, 3)):
        tensor = torch.full(shape, value)
        found = made(tensor)
        assert sum(found.counts) == tensor.numel()
        assert found.limits[-1] >= tensor.max().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_whole_range_of_a_type_is_counted(dtype: torch.dtype) -> None:
    """Its ends are further apart than the type can say."""
    ends = torch.finfo(dtype)
    found = made(torch.tensor([ends.min, 0.0, ends.max], dtype=dtype))
    assert (found.counts[0], found.counts[-1], sum(found.counts)) == (1.0, 1.0, 3.0)
    assert found.counts[BINS // 2] == 1.0
    assert list(found.limits) == sorted(found.limits)


def test_parameter_is_left_as_it_is() -> None:
    """Without a graph, from a view that is not contiguous too."""
    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4).t())
    assert counted(weight).grad_fn is None
    assert made(weight).total == 66.0


@pytest.mark.parametrize(
    ("hist", "why"),
    [
        (0.5, "got a float: give a dict of tensors"),
        ([torch.ones(2)], "got a list"),
        ({"w": 3}, "got a int: give a tensor"),
        ({3: torch.ones(2)}, "a name that is no text"),
        ({"w": torch.ones(2).to_sparse()}, "sparse or quantized"),
        ({"w": torch.ones(2, dtype=torch.complex64)}, "give their abs()"),
        ({"w": torch.ones(2, device="meta")}, "without values"),
    ],
)
def test_what_has_no_histogram_is_refused(hist: Any, why: str) -> None:
    """In one sentence that says what to give."""
    with pytest.raises(CallError) as raised:
        check_histograms(hist)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)

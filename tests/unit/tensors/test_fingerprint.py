"""What a rank's parameters are in a few numbers."""

import math

import pytest
import torch

from elasticd.tensors import fingerprint
from elasticd.tensors.fingerprint import (
    Measure,
    digest,
    is_near,
    is_row_major,
    measured,
    owned_tensors,
)

KINDS = {
    "floats": torch.arange(9.0),
    "an offset": torch.arange(9.0)[1:],
    "a number": torch.tensor(3.0),
    "halves": torch.arange(7).bfloat16(),
    "bytes": torch.arange(21, dtype=torch.uint8),
    "flags": torch.tensor([True, False, True]),
    "complex": torch.ones(3, dtype=torch.complex64),
    "transposed": torch.arange(12.0).view(3, 4).t(),
    "many": torch.arange((1 << 20) + 5, dtype=torch.int16),
}


@pytest.mark.parametrize("is_on_device", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_other_element_is_another_digest(
    kind: str, is_on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the host's memory by a hash, on a device by a sum of words."""
    monkeypatch.setattr(fingerprint, "is_plain", lambda _: not is_on_device)
    tensor = KINDS[kind].clone()
    before = digest({"x": tensor})
    assert digest({"x": tensor.clone()}) == before != digest({"y": tensor})
    flat = tensor.view(-1) if tensor.is_contiguous() else tensor.t().view(-1)
    flat[-1] = not flat[-1] if tensor.dtype is torch.bool else flat[-1] + 1
    assert digest({"x": tensor}) != before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool])
def test_order_in_memory_makes_no_other_digest_by_rows(dtype: torch.dtype) -> None:
    """Moments of a channels_last model lie row by row where a rank was given them."""
    rows = torch.arange(4 * 3 * 2 * 2).view(4, 3, 2, 2).to(dtype)
    channels = rows.to(memory_format=torch.channels_last)
    assert is_row_major([rows]) and not is_row_major([rows, channels])
    assert digest({"x": rows}, by_rows=True) == digest({"x": channels}, by_rows=True)
    assert digest({"x": rows}, by_rows=True) == digest({"x": rows})
    channels[3, 2, 1, 0] = 0
    assert digest({"x": rows}, by_rows=True) != digest({"x": channels}, by_rows=True)


def test_tensors_without_elements_have_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "is_plain", lambda _: False)
    assert digest({"x": torch.zeros(0)}) == digest({"x": torch.zeros(0)})


def test_measure_is_sum_and_length_in_double_precision() -> None:
    found = measured({"x": torch.full(((1 << 20) + 3,), 0.1, dtype=torch.float32)})["x"]
    count, value = (1 << 20) + 3, float(torch.tensor(0.1))
    assert found.total == pytest.approx(count * value, rel=1e-9)
    assert found.length == pytest.approx(math.sqrt(count) * value, rel=1e-9)


def test_rounding_is_near_and_a_step_of_its_own_is_not() -> None:
    torch.manual_seed(1)
    one = torch.randn(10_000) * 0.02
    rounded = one * (1 + torch.randn(10_000) * 1e-7)
    stepped = one + torch.randn(10_000).sign() * 1e-4
    table = measured({"one": one, "rounded": rounded, "stepped": stepped})
    assert is_near(table["one"], table["rounded"])
    assert not is_near(table["one"], table["stepped"])


def test_what_is_lost_on_both_is_near() -> None:
    """That a loss is not finite is said elsewhere."""
    lost = Measure(math.nan, math.nan)
    assert is_near(lost, Measure(math.inf, math.inf))
    assert not is_near(lost, Measure(1.0, 1.0))


def test_tensors_of_two_optimizers_keep_names_of_their_own() -> None:
    """Both may have moments of one parameter."""
    shared = torch.nn.Parameter(torch.ones(2))
    shared.grad = torch.ones(2)
    optimizers = [torch.optim.Adam([shared]), torch.optim.Adam([shared])]
    for optimizer in optimizers:
        optimizer.step()
    found = owned_tensors(optimizers, {id(shared): "model.weight"})
    assert len(found) == 1 + 2 * 3 and "model.weight (exp_avg)" in found
    assert "parameter 0 of Adam 0" in owned_tensors(optimizers[:1])

"""A row of bytes gives back what tensors held, whatever their dtypes and sizes."""

import pytest
import torch

from elasticd.tensors.byte_row import ByteRow, is_in_a_row


def test_copies_are_the_values_at_copy_time_and_have_memory_of_their_own() -> None:
    tensors = [
        torch.arange(3, dtype=torch.int8),
        torch.tensor(float("nan")),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.empty(0),
        torch.tensor(7, dtype=torch.int64),
        torch.tensor([True, False, True]),
        torch.tensor([1 + 2j]),
    ]
    before = [each.clone() for each in tensors]
    row = ByteRow(tensors)
    row.copied = row.read()
    for each in tensors:
        each.zero_()
    first, second = row.copies(), row.copies()
    first[0].fill_(9)
    for made, wanted in zip(second, before, strict=True):
        assert made.dtype == wanted.dtype and made.shape == wanted.shape
        assert torch.equal(made.nan_to_num(), wanted.nan_to_num())


def test_row_is_current_until_a_byte_changes() -> None:
    tensor = torch.tensor([float("nan"), 0.0])
    row = ByteRow([tensor])
    row.copied = row.read()
    assert row.is_current()
    tensor[1] = -0.0
    assert not row.is_current()


def test_tensor_may_still_be_resized_by_the_script() -> None:
    tensor = torch.zeros(4)
    ByteRow([tensor]).read()
    tensor.resize_(8)
    assert tensor.numel() == 8


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(8)[::2],
        torch.zeros(1).expand(3),
        torch.zeros(2, device="meta"),
        torch.zeros(2, dtype=torch.complex64).conj(),
        torch.zeros(2).to_sparse(),
        torch.nn.parameter.UninitializedBuffer(),
    ],
)
def test_what_is_more_or_less_than_its_bytes_is_not_taken(tensor: torch.Tensor) -> None:
    assert not is_in_a_row(tensor)

"""A tensor's bytes are those of its contiguous copy, whichever range is read or written."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elasticd.tensors.tensor_bytes import TensorBytes

SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=4)


def counted(shape: list[int], order: list[int], step: int) -> torch.Tensor:
    """Numbers in a memory that has its dimensions in another order, and gaps."""
    within = [shape[dim] for dim in order]
    memory = torch.arange(torch.Size(within).numel() * step, dtype=torch.int32)
    tensor = memory[::step].reshape(within) if step == 1 else memory[::step].view(within)
    return tensor.permute([order.index(dim) for dim in range(len(shape))])


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(SHAPES)
    order = draw(st.permutations(range(len(shape))))
    return counted(shape, list(order), draw(st.sampled_from([1, 2])))


@st.composite
def ranges(draw: st.DrawFn) -> tuple[torch.Tensor, int, int]:
    tensor = draw(tensors())
    start = draw(st.integers(0, tensor.numel() - 1))
    return tensor, start * 4, draw(st.integers(1, tensor.numel() - start)) * 4


@given(ranges())
def test_any_range_is_read_as_from_a_contiguous_copy(case: tuple[torch.Tensor, int, int]) -> None:
    """Whatever the strides are."""
    tensor, start, length = case
    whole = tensor.contiguous().numpy().tobytes()
    data = TensorBytes(tensor)
    assert len(data) == len(whole)
    assert bytes(data.read(start, length)) == whole[start : start + length]


@given(ranges())
def test_any_range_is_written_and_nothing_else(case: tuple[torch.Tensor, int, int]) -> None:
    """Into the tensor's own memory, in the order in which it is read."""
    tensor, start, length = case
    wanted = bytearray(tensor.contiguous().numpy().tobytes())
    wanted[start : start + length] = b"\x07" * length

    def write(place: memoryview) -> None:
        assert len(place) == length
        place[:] = b"\x07" * length

    TensorBytes(tensor).fill(start, length, write)
    assert tensor.contiguous().numpy().tobytes() == bytes(wanted)


def test_plain_memory_is_used_as_it_is() -> None:
    """No copy is made of what is in order already."""
    tensor = torch.zeros(8, dtype=torch.int64)
    view = TensorBytes(tensor).read(8, 16)
    tensor[1] = -1
    assert bytes(view) == b"\xff" * 8 + b"\x00" * 8


@pytest.mark.parametrize(
    "tensor",
    [torch.tensor([1 + 2j, 3 - 4j]).conj(), torch.tensor([1 + 2j, 3 - 4j]).conj().imag],
)
def test_what_is_only_seen_as_another_number_is_read_as_that(tensor: torch.Tensor) -> None:
    """Conjugates and negatives are views until somebody writes them down."""
    whole = tensor.resolve_conj().resolve_neg().contiguous().numpy().tobytes()
    data = TensorBytes(tensor)
    assert bytes(data.read(0, len(whole))) == whole
    data.fill(0, len(whole), lambda place: memoryview(place).__setitem__(slice(None), whole))
    assert bytes(TensorBytes(tensor).read(0, len(whole))) == whole


@pytest.mark.parametrize("kind", [torch.bool, torch.bfloat16, torch.float8_e4m3fn, torch.float64])
def test_types_that_numpy_does_not_know_pass_too(kind: torch.dtype) -> None:
    """Bytes are bytes."""
    source = torch.tensor([[0.0, 1.0, 0.5], [2.0, 0.0, 1.0]]).to(kind).mT
    target = torch.zeros_like(source)
    size = len(TensorBytes(source))
    read = bytes(TensorBytes(source).read(0, size))
    TensorBytes(target).fill(0, size, lambda place: place.__setitem__(slice(None), read))
    assert torch.equal(target.float(), source.float())


def test_half_an_element_of_what_is_not_plain_is_refused() -> None:
    """Only a stranger asks so."""
    data = TensorBytes(torch.zeros(4, 4).mT)
    with pytest.raises(ValueError, match="no whole elements"):
        data.read(2, 4)


def test_nothing_has_no_bytes() -> None:
    """Empty tensors pass like others."""
    assert len(TensorBytes(torch.empty(0, 3))) == 0


def test_of_a_gpu_a_piece_at_a_time_is_staged_in_pinned_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the tensor's device, whatever the thread's current one is."""
    asked: list[dict[str, Any]] = []
    devices: list[torch.device] = []
    empty = torch.empty

    class OnGpu(torch.Tensor):
        is_cuda = True
        device = torch.device("cuda", 3)

    def staged(*size: int, **options: Any) -> torch.Tensor:
        asked.append({"size": size, **options})
        options.pop("pin_memory")
        return empty(*size, **options)

    class Noted:
        def __init__(self, device: torch.device) -> None:
            devices.append(device)

        def __enter__(self) -> None: ...
        def __exit__(self, *unused: object) -> None: ...

    monkeypatch.setattr(torch, "empty", staged)
    monkeypatch.setattr(torch.cuda, "device", Noted)
    tensor = torch.arange(1024.0).as_subclass(OnGpu)
    wanted = torch.arange(1024.0)[8:24].numpy().tobytes()
    data = TensorBytes(tensor)
    data._tensor = tensor
    assert bytes(data.read(32, 64)) == wanted
    assert asked == [{"size": (16,), "dtype": torch.float32, "pin_memory": True}]
    assert set(devices) == {torch.device("cuda", 3)}

"""The bytes of one tensor in row-major order, wherever its memory is, one range at a time.

Ranks exchange bytes, and not every tensor is its bytes: it may lie on a GPU, be transposed, or have
gaps. Copying it to the host as a whole needs its size in host memory, which a node whose GPUs all
recover at once does not have. Here no more than a range is copied; the memory of a plain tensor is
used as it is.
"""

from collections.abc import Callable, Iterator

import torch

from elasticd.tensors import cuda

__all__ = ["TensorBytes", "has_room", "is_plain", "write_into"]


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's own memory is its bytes in order, and can be read from here."""
    is_view = tensor.is_conj() or tensor.is_neg()
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not is_view


def has_room(tensor: torch.Tensor) -> bool:
    """Return False if several elements share one place, as in an expanded tensor."""
    return all(step or size == 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def write_into(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values of the same shape into a tensor; where it is expanded, the first of each row."""
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    for at, step in enumerate(strides):
        if not step and tensor.shape[at] > 1:
            tensor, values = tensor.narrow(at, 0, 1), values.narrow(at, 0, 1)
    tensor.copy_(values)


class TensorBytes:
    """Reads and writes one tensor as bytes; several threads may use it for different bytes."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor.detach()
        self._plain: memoryview | None = None
        if is_plain(tensor) and tensor.numel():
            # One element counts as contiguous whatever its stride.
            self._plain = _bytes_of(self._tensor.as_strided((tensor.numel(),), (1,)))

    def __len__(self) -> int:
        return self._tensor.numel() * self._tensor.element_size()

    def read(self, start: int, length: int) -> memoryview:
        """Return a range of bytes: of the tensor's memory, or of a copy.

        Raises:
            ValueError: the tensor is not its bytes, and this is not a range of whole elements.
        """
        if self._plain is not None:
            return self._plain[start : start + length]
        staging = self._staging(start, length)
        with cuda.on(self._tensor.device):
            for run, part in self._runs(start, staging):
                part.copy_(run)
        return _bytes_of(staging)

    def fill(self, start: int, length: int, write: Callable[[memoryview], object]) -> None:
        """Let `write` write a range of bytes, into the tensor's memory or beside it.

        Raises: ValueError: the tensor is not its bytes, and this is not a range of whole elements.
        """
        if self._plain is not None:
            write(self._plain[start : start + length])
            return
        staging = self._staging(start, length)
        write(_bytes_of(staging))
        with cuda.on(self._tensor.device), torch.no_grad():
            for run, part in self._runs(start, staging):
                run.copy_(part)

    def _staging(self, start: int, length: int) -> torch.Tensor:
        size = self._tensor.element_size()
        if start % size or length % size:
            raise ValueError(f"bytes {start} to {start + length} are no whole elements of {size}")
        # From memory that is not pinned a GPU copies at a fraction of its speed.
        with cuda.on(self._tensor.device):
            return torch.empty(
                length // size, dtype=self._tensor.dtype, pin_memory=self._tensor.is_cuda
            )

    def _runs(
        self, start: int, staging: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        first, at = start // self._tensor.element_size(), 0
        for run in _runs(self._tensor, first, first + len(staging)):
            count = run.numel()
            yield run, staging[at : at + count].view(run.shape)
            at += count


def _runs(tensor: torch.Tensor, start: int, stop: int) -> Iterator[torch.Tensor]:
    """Yield views that together are a range of the tensor's elements, in row-major order."""
    if start == 0 and stop == tensor.numel():
        yield tensor
        return
    if tensor.is_contiguous():
        yield tensor.view(-1)[start:stop]
        return
    row = tensor.numel() // tensor.shape[0]
    first, last = -(-start // row), stop // row
    if first > last:  # All of it within one row.
        yield from _runs(tensor[last], start - last * row, stop - last * row)
        return
    if start % row:
        yield from _runs(tensor[first - 1], start % row, row)
    if first < last:
        yield tensor[first:last]
    if stop % row:
        yield from _runs(tensor[last], 0, stop % row)


def _bytes_of(flat: torch.Tensor) -> memoryview:
    if not flat.numel():
        return memoryview(b"")
    return flat.view(torch.uint8).numpy().data

"""Small tensors that are copied together at every commit.

To copy one costs a microsecond, whatever its size, and as much again to find the memory of its
copy: for the hundred buffers of a deep network that adds up. Those of one dimension, which nearly
all buffers are (BatchNorm's statistics), are written one behind the other: on the host their bytes
by one `join` (`ByteRow`), on a device by a single `cat`.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Protocol

import torch

from elasticd.tensors.byte_row import ByteRow, is_in_a_row

__all__ = ["FlatCopy", "bundled"]

_address = torch.Tensor.data_ptr
_size = torch.Tensor.numel
_shape = attrgetter("shape")
_kind = attrgetter("dtype", "shape")
_is_contiguous = torch.Tensor.is_contiguous


class FlatCopy(Protocol):
    """Some tensors and memory for their values."""

    def copy(self) -> bool:
        """Copy the values; False: not all are shaped as they were, so nothing is to be used."""

    def pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Return each tensor and its copy."""


def bundled(tensors: Sequence[torch.Tensor]) -> list[FlatCopy]:
    """Sort tensors into as few bundles as possible, and take the memory."""
    by_kind: dict[object, list[torch.Tensor]] = {}
    on_host: list[torch.Tensor] = []
    for tensor in tensors:
        if is_in_a_row(tensor) and tensor.dim() < 2:
            on_host.append(tensor)
            continue
        dimensions = tensor.dim() if tensor.layout is torch.strided else 2
        by_kind.setdefault((tensor.device, tensor.dtype, min(dimensions, 2)), []).append(tensor)
    host: list[FlatCopy] = [_HostRow(on_host)] if on_host else []
    return host + [
        _Row(each) if each[0].layout is torch.strided and each[0].dim() < 2 else _Heap(each)
        for each in by_kind.values()
    ]


class _HostRow:
    """On the host, of whatever dtypes, of one dimension each or of none."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        self._addresses = list(map(_address, tensors))
        self._kinds = list(map(_kind, tensors))
        self._row = ByteRow(tensors)

    def copy(self) -> bool:
        tensors = self._tensors
        # `tensor.data = x` and `resize_` leave the same object at another place or of another kind.
        if (
            list(map(_address, tensors)) != self._addresses
            or list(map(_kind, tensors)) != self._kinds
            or not all(map(_is_contiguous, tensors))
        ):
            return False
        self._row.copy()
        return True

    def pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self._tensors, self._row.copies(), strict=True)


class _Row:
    """Of one device and dtype, of one dimension each, or of none: their copies lie side by side."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        # What has no dimension cannot be written in a row, but a view of its one number can.
        self._sources = [each.detach().view(1) if not each.dim() else each for each in tensors]
        self._dimensions = tensors[0].dim()
        self._sizes = list(map(_size, tensors))
        self._addresses = self._places()
        self._copies = torch.empty(
            sum(self._sizes), dtype=tensors[0].dtype, device=tensors[0].device
        )

    def copy(self) -> bool:
        # As `cat` takes only what has equally many dimensions, to look at one's is enough.
        if (
            list(map(_size, self._tensors)) != self._sizes
            or self._tensors[0].dim() != self._dimensions
            or self._places() != self._addresses
        ):
            return False
        try:
            torch.cat(self._sources, out=self._copies)
        except RuntimeError:
            return False
        return True

    def pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for tensor, copied in zip(
            self._tensors, torch.split(self._copies, self._sizes), strict=True
        ):
            yield tensor, copied if self._dimensions else copied.view(())

    def _places(self) -> list[int] | None:
        """Where the numbers are of which there are views; they stay, but for `tensor.data = x`."""
        return None if self._dimensions else list(map(_address, self._tensors))


class _Heap:
    """Of any shape: each has a copy of its own."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        self._shapes = list(map(_shape, tensors))
        self._copies = [torch.empty_like(each) for each in tensors]

    def copy(self) -> bool:
        if list(map(_shape, self._tensors)) != self._shapes:
            return False
        torch._foreach_copy_(self._copies, self._tensors)
        return True

    def pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self._tensors, self._copies, strict=True)

"""Copies small tensors together at every commit.

To copy a tensor costs a microsecond, whatever its size, and to find the memory of its copy another
one. This adds up for the hundred buffers of a deep network. Nearly all buffers have one dimension
(BatchNorm's statistics). Their copies lie one behind the other: on the host one `join` writes their
bytes (`ByteRow`), on a device a single `cat` does.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Protocol

import torch

from elasticd.tensors.byte_row import ByteRow, is_in_a_row

__all__ = ["FlatCopy", "HostRow", "bundled"]

_address = torch.Tensor.data_ptr
_size = torch.Tensor.numel
_kind = attrgetter("dtype", "shape")


class FlatCopy(Protocol):
    """Some tensors, and memory for the copies of their values."""

    def copy(self) -> bool:
        """Copy the values; return False if a shape has changed, so that no copy may be used."""

    def pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Return each tensor and its copy."""


class HostRow:
    """Tensors on the host, of any dtypes; each has one dimension or none.

    Its owner checks that the tensors have not moved or changed their type, and reads the row.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors
        self.addresses = list(map(_address, tensors))
        self.kinds = list(map(_kind, tensors))
        self.row = ByteRow(tensors)

    def pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self.tensors, self.row.copies(), strict=True)


def bundled(tensors: Sequence[torch.Tensor]) -> tuple[HostRow, list[FlatCopy]]:
    """Sort tensors of any shape into as few copies as possible, and take the memory for them."""
    by_kind: dict[object, list[torch.Tensor]] = {}
    on_host: list[torch.Tensor] = []
    for tensor in tensors:
        if is_in_a_row(tensor) and tensor.dim() < 2:
            on_host.append(tensor)
            continue
        dimensions = tensor.dim() if tensor.layout is torch.strided else 2
        by_kind.setdefault((tensor.device, tensor.dtype, min(dimensions, 2)), []).append(tensor)
    return HostRow(on_host), [
        _Row(each) if each[0].layout is torch.strided and each[0].dim() < 2 else _Heap(each)
        for each in by_kind.values()
    ]


class _Row:
    """Tensors of one device and dtype, all of one dimension or all of none, copied side by side."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        # `cat` takes no tensor without a dimension, but it takes a view of its one number.
        self._sources = [each.detach().view(1) if not each.dim() else each for each in tensors]
        self._dimensions = tensors[0].dim()
        self._sizes = list(map(_size, tensors))
        self._addresses = self._places()
        self._copies = torch.empty(
            sum(self._sizes), dtype=tensors[0].dtype, device=tensors[0].device
        )

    def copy(self) -> bool:
        # `cat` refuses tensors of different dimensions, so a look at the first one is enough.
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
        """Return the addresses of numbers that were viewed; only `tensor.data = x` moves them."""
        return None if self._dimensions else list(map(_address, self._tensors))


class _Heap:
    """Tensors of any shape, each with a copy of its own."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        self._kinds = list(map(_kind, tensors))
        self._copies = [torch.empty_like(each) for each in tensors]

    def copy(self) -> bool:
        # `tensor.data = x` may change the type, too, in which the copy would be rounded.
        if list(map(_kind, self._tensors)) != self._kinds:
            return False
        torch._foreach_copy_(self._copies, self._tensors)
        return True

    def pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self._tensors, self._copies, strict=True)

"""Copies large tensors that no optimizer owns, once they change.

The version counter shows a change. Because `tensor.data` does not count, so does a checksum at the
commits 1, 2, 4, 8, ... Buffers are copied before they change, up to a limit: a forward pass may
change one for the first time (a queue that is used from some epoch on), and then waits for the
others in its backward pass, so that all ranks would be without their state at once. Rejected: a
copy of all from the start, which would double the memory of a frozen backbone.
"""

from collections.abc import Mapping
from operator import attrgetter, is_not
from typing import Any, NamedTuple

import torch

from elasticd.tensors.tensor_bytes import write_into

__all__ = ["LargeCopy", "TensorSlot", "early", "put_tensor_back", "size_of"]

EARLY_BYTES = 64 << 20
"""Of so many bytes of large buffers there is a copy before they were seen to change."""

_version = attrgetter("_version")


class TensorSlot(NamedTuple):
    """The place of a tensor: a key in a module's own dict of buffers or parameters."""

    home: Any
    key: str


class LargeCopy:
    """Tensors that are copied if they changed since the last commit."""

    def __init__(
        self,
        slots: list[TensorSlot],
        volatile: Mapping[int, tuple[torch.Tensor, bool]],
        early: set[int],
    ) -> None:
        """Take the slots, and the value that `volatile` of the `LargeCopy` before returned for the
        same tensors; `early` are the indices of the tensors to copy at once.
        """
        self._slots = slots
        self._early = early
        self.has_any = bool(slots)
        here = [id(home.get(key)) for home, key in slots]
        # Not those of objects that are built anew: each generation would keep some more alive.
        self._volatile = {each: volatile[each] for each in here if each in volatile}
        self._tensors: list[torch.Tensor | None] = [None] * len(slots)
        self._versions: list[int] = [-1] * len(slots)
        self._copies: list[torch.Tensor | None] = [None] * len(slots)
        self._sums: list[int | None] = [None] * len(slots)
        self._secret = {
            index for index, each in enumerate(here) if each in volatile and volatile[each][1]
        }
        """The indices of tensors that change without their version counter."""
        self._ages = [0] * len(slots)
        """How many commits ago each copy was made."""
        self._repeated: set[int] = set()
        """The indices of places whose tensor stands in one before, which is the one copied."""
        self._is_probed = False
        self._is_new = True

    def volatile(self) -> dict[int, tuple[torch.Tensor, bool]]:
        """Return the tensors, by their ids, that have changed and probably will again; True for
        those that change without their version counter.
        """
        pairs = zip(self._tensors, self._copies, strict=True)
        now = {
            id(tensor): (tensor, index in self._secret)
            for index, (tensor, copied) in enumerate(pairs)
            if tensor is not None and copied is not None
        }
        return self._volatile | now

    def copy(self, *, is_probe: bool) -> None:
        tensors = [home.get(key) for home, key in self._slots]
        versions = [-1 if tensor is None else _version_of(tensor) for tensor in tensors]
        changed = {
            index
            for index, tensor in enumerate(tensors)
            if versions[index] != self._versions[index] or tensor is not self._tensors[index]
        }
        if any(map(is_not, tensors, self._tensors)):
            changed |= self._repeated
            seen: dict[int, int] = {}
            every = enumerate(tensors)
            self._repeated = {at for at, each in every if seen.setdefault(id(each), at) != at}
        if is_probe:
            self._probe(tensors, changed)
        self._is_probed = is_probe
        if self._is_new:
            known = {index for index in changed if id(tensors[index]) in self._volatile}
            changed = known | self._early
            self._is_new = False
        self._look_at_copies(tensors, changed)
        for index in (changed | self._secret) - self._repeated:
            self._copies[index] = _copy_of(tensors[index], self._copies[index])
            self._ages[index] = 0
        self._tensors, self._versions = tensors, versions

    def put_back(self) -> bool:
        is_complete = True
        for index, (home, key) in enumerate(self._slots):
            tensor, copied = self._tensors[index], self._copies[index]
            home[key] = tensor
            if tensor is None or index in self._repeated:
                continue
            if copied is not None:
                put_tensor_back(tensor, copied)
                self._versions[index] = _version_of(tensor)
            elif _version_of(tensor) != self._versions[index] or (
                self._is_probed and _sum_of(tensor) != self._sums[index]
            ):
                is_complete = False
        return is_complete

    def _look_at_copies(self, tensors: list[torch.Tensor | None], changed: set[int]) -> None:
        """Find the tensors that have changed since their copy was made, though no counter shows it.

        To restore such a copy would undo commits. The pauses between the looks grow.
        """
        for index, (tensor, copied) in enumerate(zip(tensors, self._copies, strict=True)):
            if tensor is None or copied is None or index in changed or index in self._secret:
                continue
            self._ages[index] = age = self._ages[index] + 1
            if age & (age - 1) == 0 and _sum_of(tensor) != _sum_of(copied):
                self._secret.add(index)

    def _probe(self, tensors: list[torch.Tensor | None], changed: set[int]) -> None:
        for index, tensor in enumerate(tensors):
            if tensor is None or index in self._secret:
                continue
            before, self._sums[index] = self._sums[index], _sum_of(tensor)
            if index not in changed and before is not None and before != self._sums[index]:
                self._secret.add(index)


def early(slots: list[TensorSlot], buffers: set[int]) -> set[int]:
    """Return the indices of the buffers that are copied before they were seen to change."""
    found: set[int] = set()
    left = EARLY_BYTES
    for index, (home, key) in enumerate(slots):
        tensor = home[key]
        if id(tensor) in buffers and (size := size_of(tensor)) <= left:
            found.add(index)
            left -= size
    return found


def size_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor, also of a sparse one (which only a buffer with persistent=False
    may be), where torch refuses to tell them.
    """
    return sum(each.numel() * each.element_size() for each in _dense_parts(tensor))


def put_tensor_back(tensor: torch.Tensor, copied: torch.Tensor) -> None:
    try:
        if tensor.shape == copied.shape and not _is_freed(tensor):
            write_into(tensor, copied)
            return
    except RuntimeError:  # Memory that cannot be written to here, as that of inference mode.
        pass
    tensor.data = copied.clone()


def _is_freed(tensor: torch.Tensor) -> bool:
    """Return whether a script has shrunk the memory, which torch would write past its end."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * step for size, step in pairs)
    return tensor.untyped_storage().nbytes() < (last + 1) * tensor.element_size()


def _copy_of(tensor: torch.Tensor | None, memory: torch.Tensor | None) -> torch.Tensor | None:
    if tensor is None:
        return None
    is_other = memory is None or memory.shape != tensor.shape or memory.dtype != tensor.dtype
    if memory is None or is_other or tensor.layout is not torch.strided:
        return tensor.detach().clone()
    return memory.copy_(tensor)


def _version_of(tensor: torch.Tensor) -> int:
    # A tensor made in inference mode has no counter, and nothing outside of that mode changes it.
    return 0 if tensor.is_inference() else _version(tensor)


def _sum_of(tensor: torch.Tensor) -> int:
    """Return a checksum that nearly every change of the values changes; it waits for the device."""
    total = 0
    for part in _dense_parts(tensor):
        flat = part.detach().contiguous().flatten().view(torch.uint8)
        words = flat[: flat.numel() // 8 * 8].view(torch.int64)
        total += int(words.sum()) + int(flat[words.nbytes :].sum())
    return total


def _dense_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors of which a sparse one consists; a dense one is itself."""
    layout = tensor.layout
    if layout is torch.sparse_coo:
        ordered = tensor.detach().coalesce()  # Another tensor only where places stand in it twice.
        return ordered.indices(), ordered.values()
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)

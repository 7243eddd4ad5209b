"""Tells whether a tensor lies in the memory of what optimizers keep: moments, tensors of a group.

A state that is loaded fills each value and each moment in a memory of its own, so a value that was
bound to a moment would stay as it is there. The places are looked up anew only where an optimizer
keeps something for more parameters than before: some scripts make a value anew in each step.
"""

from collections.abc import Iterator, Sequence

import torch

__all__ = ["MomentMemory"]


class MomentMemory:
    """The memory of what optimizers keep for their parameters and in their groups."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = optimizers
        self._counts: list[int] = []
        self._memories: set[int] = set()

    def owner_of(self, tensor: torch.Tensor) -> str:
        """Return the name of what has this tensor's memory; empty if no optimizer has it."""
        counts = [len(each.state) for each in self._optimizers]
        if counts != self._counts:
            self._counts, self._memories = counts, {place for place, _ in self._rows()}
        place = _memory(tensor)
        if place not in self._memories:
            return ""
        # They may have been replaced since, and their memory given to others.
        return next((name for each, name in self._rows() if each == place), "")

    def _rows(self) -> Iterator[tuple[int, str]]:
        for optimizer in self._optimizers:
            for entry in (*optimizer.state.values(), *optimizer.param_groups):
                for key, each in entry.items() if isinstance(entry, dict) else ():
                    if isinstance(each, torch.Tensor) and _memory(each):
                        yield _memory(each), f"{key} of {type(optimizer).__name__}"


def _memory(tensor: torch.Tensor) -> int:
    """Return where a tensor's memory is; 0 for one that has none of its own, or is sharded."""
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return 0
    is_dense = tensor.layout is torch.strided and not tensor.is_nested
    return tensor.untyped_storage().data_ptr() if is_dense and not tensor.is_meta else 0

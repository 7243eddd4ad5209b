"""A copy of one optimizer's parameters and their state, to which a rank can go back.

Only ranks that can be interrupted between an optimizer's step and the commit need it: by
collectives between the steps of several optimizers, or after them. All others are interrupted
before the optimizer changed anything, and pay nothing. The memory is taken once and used again; if
the GPU has no room for it, it is the host's.
"""

import sys
from collections.abc import Iterator
from typing import Any

import torch

from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.value_copy import copy_value, restored

__all__ = ["OptimizerUndo", "parameters_of"]

_SPARE_BYTES = 1 << 30
"""What a GPU must have left beside the copies: libraries take workspace when they want it."""


class OptimizerUndo:
    """Parameters and state of one optimizer as they were at `take`.

    The values of its parameter groups (learning rates) are not here: they belong to the commit.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.is_valid = False
        self._optimizer = optimizer
        self._tensors: list[torch.Tensor] = []
        self._copies: list[torch.Tensor] = []
        self._state: dict[Any, Any] = {}
        """The optimizer's own dict, which load_state_dict replaces by another."""
        self._entries: dict[Any, Any] = {}

    @torch.no_grad()
    def take(self, *, is_required: bool) -> None:
        """Make the copy; without `is_required` only if the GPU has room for it."""
        self.is_valid = False
        tensors, entries = self._find()
        if not _are_same(tensors, self._tensors):
            copies = _memory_for(tensors, is_required=is_required)
            if copies is None:
                self.release()
                return
            self._tensors, self._copies = tensors, copies
        torch._foreach_copy_(self._copies, tensors)
        self._state, self._entries = self._optimizer.state, entries
        self.is_valid = True

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore the optimizer and its parameters as they were at `take`; this may be repeated."""
        torch._foreach_copy_(self._tensors, self._copies)
        state: Any = self._state
        for key in [key for key in state if key not in self._entries]:
            del state[key]  # made by the step that never was
        for key, entry in self._entries.items():
            is_dict = isinstance(entry, dict)
            state[key] = (
                {name: restored(value) for name, value in entry.items()}
                if is_dict
                else restored(entry)
            )
        self._optimizer.state = state

    def drop(self) -> None:
        """Forget the copy, and keep the memory for the next."""
        self.is_valid = False

    def release(self) -> None:
        """Forget the copy, and give the memory back."""
        self.is_valid = False
        if not self._tensors:
            return
        self._tensors, self._copies = [], []
        self._state, self._entries = {}, {}

    def _find(self) -> tuple[list[torch.Tensor], dict[Any, Any]]:
        """Return the tensors to copy, and the state with those tensors in their places."""
        tensors = [memory_of(each) for each in parameters_of(self._optimizer)]
        entries: dict[Any, Any] = {}
        for key, entry in self._optimizer.state.items():
            if not isinstance(entry, dict):  # A number for all parameters, say.
                entries[key] = copy_value(entry)
                continue
            kept = entries[key] = {}
            for name, value in entry.items():
                if isinstance(value, torch.Tensor):
                    tensors.append(memory_of(value))
                    kept[name] = value
                else:
                    kept[name] = copy_value(value)
        return tensors, entries


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Return all parameters that an optimizer updates."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _are_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _memory_for(tensors: list[torch.Tensor], *, is_required: bool) -> list[torch.Tensor] | None:
    needed: dict[torch.device, int] = {}
    for tensor in tensors:
        if tensor.is_cuda:
            needed[tensor.device] = needed.get(tensor.device, 0) + tensor.nbytes
    full = {device for device, size in needed.items() if size + _SPARE_BYTES > _free_bytes(device)}
    if full and not is_required:
        return None
    for device in full:
        sys.stderr.write(
            f"elasticd: {device} has no room for {needed[device] / (1 << 30):.1f} GiB, a copy of "
            "what an optimizer is about to change, so it is made on the host and takes longer: "
            "step the optimizers one after the other, and reduce metrics before.\n"
        )
    return [
        torch.empty_like(tensor, device="cpu" if tensor.device in full else tensor.device)
        for tensor in tensors
    ]


def _free_bytes(device: torch.device) -> int:
    """Return the bytes torch has not reserved: a forward pass needs its reserve again."""
    free, _ = torch.cuda.mem_get_info(device)
    return free

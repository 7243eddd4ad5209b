"""Shared memory that a GPU writes to at full speed, without a detour through a buffer of CUDA's.

Pages that may move cannot be written to by a card itself, so the driver copies through memory of
its own, at a fifth of the speed, and a copy cannot go on by itself. What is registered stays where
it is.
"""

import weakref
from typing import Any

import torch

from elasticd.tensors import cuda

__all__ = ["Pinned"]

_PORTABLE = 1
"""For all devices of the process (cudaHostRegisterPortable)."""


class Pinned:
    """A registration, which ends with this object; it holds the memory."""

    def __init__(self, memory: memoryview, device: torch.device) -> None:
        """Try it; where it does not work (`is_pinned`), copies are slower and that is all."""
        self.is_pinned = False
        self._keep = memory
        if not len(memory):
            return
        address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
        with cuda.on(device):
            runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            error = int(runtime.cudaHostRegister(address, len(memory), _PORTABLE))
            if error:
                _forget_error(device)
                return
        self.is_pinned = True
        # Before the memory goes; not when the interpreter ends, where CUDA may be gone.
        weakref.finalize(self, runtime.cudaHostUnregister, address).atexit = False


def _forget_error(device: torch.device) -> None:
    """CUDA keeps the last error, and the next kernel's launch would be taken for its cause."""
    try:
        torch.zeros(1, device=device)
    except RuntimeError:
        return

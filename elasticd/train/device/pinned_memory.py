"""Shared memory to which a GPU writes at full speed, without a detour through a buffer of CUDA's.

A card cannot write to pages that may move, so the driver copies through memory of its own, at a
fifth of the speed, and a copy needs the CPU. Registered pages stay in place.
"""

import weakref
from typing import Any

import torch

from elasticd.tensors import cuda

__all__ = ["Pinned"]

_PORTABLE = 1
"""For all devices of the process (cudaHostRegisterPortable)."""


class Pinned:
    """A registration with CUDA, which ends with this object. The object keeps the memory alive."""

    def __init__(self, memory: memoryview, device: torch.device) -> None:
        """Try to register the memory; if it fails (`is_pinned` False), copies are only slower."""
        self.is_pinned = False
        self._keep = memory
        if not len(memory):
            return
        address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
        with cuda.beside_captures(device):  # A thread takes memory ahead.
            runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            error = int(runtime.cudaHostRegister(address, len(memory), _PORTABLE))
            if error:
                _forget_error(device)
                return
        self.is_pinned = True
        # Before the memory goes; not when the interpreter ends, where CUDA may be gone.
        weakref.finalize(self, _unregister, runtime, address, device).atexit = False


def _unregister(runtime: Any, address: int, device: torch.device) -> None:
    with cuda.beside_captures(device):  # Whichever thread lets go of it.
        runtime.cudaHostUnregister(address)


def _forget_error(device: torch.device) -> None:
    """Clear CUDA's last error, because the next kernel launch would be taken for its cause."""
    try:
        torch.zeros(1, device=device)
    except RuntimeError:
        return

"""A few small tensors of the host, copied as bytes by one call that is not torch's.

In the caches of a step an operation of torch is a walk through code and tables that nobody used
since the step before: `cat` of a dozen buffers takes 5 us in a loop and 40 us at a commit, where
joining the same bytes takes 10. The only calls of torch here ask for the tensors' addresses.
"""

from collections.abc import Callable, Sequence
from ctypes import c_ubyte
from functools import partial

import torch
import xxhash

__all__ = ["ByteRow", "is_in_a_row"]

_PLAIN = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128,
        torch.complex64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip
"""Whose values are their bytes, and nothing else."""
_CLASSES = frozenset({torch.Tensor, torch.nn.Parameter})


def is_in_a_row(tensor: torch.Tensor) -> bool:
    """Return whether the elements stand side by side in the memory of this process."""
    return (
        type(tensor) in _CLASSES
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.dtype in _PLAIN
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
        and (tensor.data_ptr() != 0 or not tensor.nbytes)  # Its storage may have been emptied.
    )


class ByteRow:
    """Where some tensors stood when this was made; `is_in_a_row` holds for each.

    It holds no memory of theirs: before `read` its owner looks whether they are still there.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._kinds = [(each.dtype, each.shape, each.nbytes) for each in tensors]
        self._sources = [
            memoryview((c_ubyte * each.nbytes).from_address(each.data_ptr())) for each in tensors
        ]
        self.read: Callable[[], bytes] = partial(b"".join, self._sources)
        """Returns the bytes as they are now; no function of Python's stands between, see above."""
        self.copied = b""
        """The bytes as they were when its owner read them last, to keep them."""

    def is_current(self) -> bool:
        """Return whether they are what was copied; as bytes, in which NaN is equal to itself."""
        return self.copied == self.read()

    def hashes(self) -> list[int]:
        """Return a hash of the bytes of each as they are now; nothing is copied."""
        return list(map(xxhash.xxh3_64_intdigest, self._sources))

    def copies(self) -> list[torch.Tensor]:
        """Return the copies, as tensors with memory of their own."""
        memory = bytearray(self.copied)
        made, first = [], 0
        for dtype, shape, size in self._kinds:
            if size:
                # A part of its own: what is read at an odd address is slow, or an error.
                made.append(torch.frombuffer(memory[first : first + size], dtype=dtype).view(shape))
            else:
                made.append(torch.empty(shape, dtype=dtype))
            first += size
        return made

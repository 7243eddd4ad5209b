"""Copies from a GPU on a separate stream, beside the kernels of the next step.

At a commit the optimizer's kernels may not have run yet: the CPU is ahead. So the copy stream waits
for the compute stream, the copies are queued, and the next optimizer's step has the compute stream
wait for them in turn. The CPU waits for neither. All of that needs memory that the card can write
to by itself (`pinned_memory.py`).
"""

import functools
import time
from collections.abc import Iterable
from typing import Any

import torch

from elasticd.tensors import cuda

__all__ = ["CopyStream"]

_POLL_S = 0.001
"""Between two looks of a thread that has nothing else to do."""

_Pair = tuple[torch.Tensor, torch.Tensor]


class CopyStream:
    """The copies of one snapshot. The training thread calls `__init__` and `hold`."""

    def __init__(self, now: Iterable[_Pair], later: Iterable[_Pair], device: torch.device) -> None:
        """Queue copies (from, to); `now` ones on the compute stream, before anything else may
        change them.
        """
        self._device = device
        stream = _stream(device)
        with torch.no_grad():
            for source, place in now:
                place.copy_(source, non_blocking=True)
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for source, place in later:
                    place.copy_(source, non_blocking=True)
                    # Whoever lets go of it must not have its memory used again before.
                    source.record_stream(stream)
                self._event = cuda.mark(device)

    def hold(self) -> None:
        """Make later work of the compute stream wait for the copies."""
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def wait(self) -> None:
        """Wait until all is copied; any thread may call this."""
        while not cuda.is_done(self._event, self._device):
            time.sleep(_POLL_S)


@functools.cache
def _stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

"""The few calls to CUDA (or to HIP, by the same names), always for a named device.

Torch means "the current device" and "the current stream" wherever none is named, and elasticd's
threads have others than the script's.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

__all__ = ["NOTHING", "await_event", "is_used", "mark", "on", "synchronize"]

_POLL_S = 0.0002
"""The pause between two looks at the device: short beside a step, long beside the call."""

is_used: Callable[[], bool] = torch.cuda.is_initialized
"""Returns whether this process has a context: to ask whether it could have one takes longer."""


class _Nothing:
    """Stands in the place of an event where there is nothing to wait for."""

    begun: int | None = None

    def query(self) -> bool:
        return True


NOTHING = _Nothing()


def mark(device: torch.device) -> Any:
    """Return an event that is done when all is done that this thread's stream has been given so
    far.
    """
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def on(device: torch.device) -> AbstractContextManager[object]:
    """Make this the current device of this thread for a while: each thread begins with the first
    GPU, and would open a context there.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def synchronize(tensors: Iterable[torch.Tensor]) -> None:
    """Wait for all work that any thread has queued on the devices of these tensors."""
    for device in {each.device for each in tensors if each.is_cuda}:
        torch.cuda.synchronize(device)


def await_event(event: Any, is_over: Callable[[], bool]) -> bool:
    """Poll an event until it is done; return False if it should stop before.

    `event.synchronize()` could not be left: kernels of an aborted collective may never end.
    """
    while not event.query():
        if is_over():
            return False
        time.sleep(_POLL_S)
    return True

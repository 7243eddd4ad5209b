"""The few calls to CUDA (or to HIP, by the same names), always for a named device.

Torch means "the current device" and "the current stream" wherever none is named, and elasticd's
threads have others than the script's.
"""

import ctypes
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

__all__ = [
    "NOTHING",
    "await_event",
    "beside_captures",
    "is_done",
    "is_used",
    "mark",
    "on",
    "synchronize",
]

_POLL_S = 0.0002
"""The pause between two looks at the device: short beside a step, long beside the call."""

_THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: captures of other threads forbid this thread nothing."""

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


@contextmanager
def beside_captures(device: torch.device) -> Iterator[None]:
    """Let this thread make calls for this device while another one captures a CUDA graph.

    A capture in torch's default mode forbids all threads of the process to ask for an event, for
    example, and fails if one does (pytorch#104487). A thread that captures nothing may say that
    this does not concern it, which torch's own watchdog does as well.
    """
    exchange = _capture_mode_exchange()
    mode = ctypes.c_int(_THREAD_LOCAL)
    with on(device):
        is_changed = exchange is not None and exchange(ctypes.byref(mode)) == 0
        try:
            yield
        finally:
            if exchange is not None and is_changed:
                exchange(ctypes.byref(mode))  # It has the mode of before.


def is_done(event: Any, device: torch.device) -> bool:
    """Return whether an event of this device is done; any thread may ask."""
    with beside_captures(device):
        return bool(event.query())


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


@functools.cache
def _capture_mode_exchange() -> Callable[..., int] | None:
    """Return the driver's call that changes how captures concern this thread; torch has none.

    None where the driver is not there under this name. Nothing is loaded here.
    """
    is_amd = torch.version.hip is not None
    library, prefix = ("libamdhip64.so", "hip") if is_amd else ("libcuda.so.1", "cu")
    try:
        loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        found: Callable[..., int] = getattr(loaded, f"{prefix}ThreadExchangeStreamCaptureMode")
    except (OSError, AttributeError):
        return None
    return found

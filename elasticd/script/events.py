"""Sends to TensorBoard the numbers that a script of restart mode gives to `elasticd.progress`.

Only rank 0 sends. A number on a device is copied there, and read five times a second at most,
because reading waits for the device.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any

from elasticd.tensorboard.sender import Sender

__all__ = ["StepEvents"]

READ_EVERY_S = 0.2
WAITING_LIMIT = 4096
LOCK_LIMIT_S = 0.1
"""The time in seconds to wait for the lock, which no thread holds for so long; after it a step is
left out."""


class StepEvents:
    """Sends each step's numbers; any thread may call it."""

    def __init__(
        self,
        sender: Sender,
        generation: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._sender = sender
        self._clock, self._wall_clock = clock, wall_clock
        self._lock = Lock()
        self._waiting: list[tuple[int, float, tuple[str, ...], list[Any]]] = []
        self._next_s = 0.0
        sender.begin(generation, -1, is_writer=True)

    def report(self, step: int, scalars: Mapping[str, Any]) -> list[str]:
        """Take the numbers of a step; return messages for the user, usually none."""
        # A signal handler may report a step too, even while its own thread holds the lock.
        if not self._lock.acquire(timeout=LOCK_LIMIT_S):
            return []
        try:
            return self._tell(step, scalars)
        finally:
            self._lock.release()

    def _tell(self, step: int, scalars: Mapping[str, Any]) -> list[str]:
        at_s, now_s = self._wall_clock(), self._clock()
        names = tuple(name for name in scalars if name != "epoch")
        if names:
            values = [_copied(scalars[name]) for name in names]
            is_here = all(isinstance(value, float) for value in values)
            if is_here and not self._waiting:
                self._sender.scalars(step, at_s, names, values)
            elif len(self._waiting) < WAITING_LIMIT:
                self._waiting.append((step, at_s, names, values))
        if now_s < self._next_s:
            return []
        self._next_s = now_s + READ_EVERY_S
        self._read()
        return self._sender.poll()

    def flush(self) -> None:
        """Send the numbers that were not sent yet, because the process ends."""
        with self._lock:
            self._read()
        self._sender.end()

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, []
        for step, at_s, names, values in waiting:
            # A tensor may be gone: a number that is only shown must not end the script.
            with suppress(TypeError, ValueError, OverflowError, RuntimeError):
                self._sender.scalars(step, at_s, names, [float(value) for value in values])


def _copied(value: Any) -> Any:
    """Return a number; for a value that is on a device or unreadable, an object to read later."""
    if type(value) is float:
        return value
    if getattr(value, "is_cpu", True):
        with suppress(TypeError, ValueError, OverflowError, RuntimeError):
            return float(value)
        return value
    with suppress(RuntimeError):
        return value.detach().clone()
    return value

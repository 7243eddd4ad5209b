"""Passes each commit's numbers to the writer of event files.

A number, or a tensor on the CPU, is read in the commit; the heartbeat's thread passes it on.
Numbers on a device are gathered there and fetched five times a second, in one copy that nobody
waits for; steps keep their order.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

from elasticd.tensorboard.sender import Sender
from elasticd.tensors import cuda
from elasticd.train.scalars.histogram import counted

__all__ = ["EventFeed"]

FETCH_EVERY_S = 0.2
WAITING_LIMIT = 4096
"""How many steps may wait for their numbers; a device that is further behind stands still."""
END_S = 1.0
"""How long to wait for the numbers of the last steps when a generation is left."""


@dataclass(slots=True, eq=False)
class _Step:
    """The numbers of one commit; `values` is None until those on a device have arrived."""

    step: int
    at_unix_s: float
    names: tuple[str, ...]
    values: list[float] | None
    parts: list[float | torch.Tensor] = field(default_factory=list)
    """In the order of the names: numbers, and tensors on a device."""
    is_histogram: bool = False


class _Fetch:
    """One copy from devices, of all numbers of some steps."""

    def __init__(self, steps: list[_Step]) -> None:
        self._steps = steps
        tensors: dict[torch.device, list[torch.Tensor]] = {}
        for step in steps:
            for part in step.parts:
                if isinstance(part, torch.Tensor):
                    tensors.setdefault(part.device, []).append(part)
        self._copies: dict[torch.device, torch.Tensor] = {}
        self._arrivals: dict[torch.device, Any] = {}
        for device, parts in tensors.items():
            wide = torch.float32 if device.type == "mps" else torch.float64
            row = torch.cat([part.reshape(-1).to(wide) for part in parts])
            if device.type == "cuda":
                place = torch.empty(row.shape, dtype=wide, pin_memory=True)
                self._copies[device] = place.copy_(row, non_blocking=True)
                self._arrivals[device] = cuda.mark(device)
            else:
                self._copies[device] = row.cpu()

    def is_here(self) -> bool:
        return all(cuda.is_done(event, device) for device, event in self._arrivals.items())

    def take(self) -> None:
        """Give the steps their values."""
        rows = {device: copy.tolist() for device, copy in self._copies.items()}
        places = dict.fromkeys(rows, 0)
        for step in self._steps:
            step.values = []
            for part in step.parts:
                if isinstance(part, torch.Tensor):
                    start = places[part.device]
                    places[part.device] = start + part.numel()
                    step.values += rows[part.device][start : start + part.numel()]
                else:
                    step.values.append(part)
            step.parts = []


class EventFeed:
    """The training thread calls `commit`, another thread `poll`."""

    def __init__(
        self,
        sender: Sender,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        say: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        self._sender, self._say = sender, say
        self._clock, self._wall_clock = clock, wall_clock
        self._lock = Lock()
        self._waiting: deque[_Step] = deque()
        """In the order of the commits; the training thread appends."""
        self._fetch: _Fetch | None = None
        self._fetch_s = 0.0
        self._is_on_device = False
        """Something waits that no fetch has yet."""
        self._is_writer = self._has_failed = False

    def begin(self, generation: int, rank: int, step: int) -> None:
        """Begin as this rank of a generation, which goes on after step `step`."""
        self._is_writer = rank == 0
        self._sender.begin(generation, step, is_writer=self._is_writer)

    def commit(
        self,
        step: int,
        given: Mapping[str, float | torch.Tensor],
        histograms: Mapping[str, torch.Tensor],
    ) -> None:
        """Take the numbers of a step; it waits for no device, and never fails the training."""
        try:
            if given:
                self._take_numbers(step, given)
            if histograms and self._is_writer:
                self._take_histograms(step, histograms)
            if self._is_on_device and self._clock() >= self._fetch_s:
                self._begin_fetch()
            if len(self._waiting) >= WAITING_LIMIT:
                self._shorten()
        except (RuntimeError, TypeError, ValueError) as exc:
            self._fail(exc)  # No memory on the device for what is only looked at, for one.

    def poll(self) -> None:
        """Send the numbers that have arrived, and return the writer's messages."""
        try:
            self._send_arrived()
            for sentence in self._sender.poll():
                if self._is_writer:
                    self._say(f"elasticd: TensorBoard: {sentence}\n")
        except Exception as exc:
            self._fail(exc)  # Without its heartbeats a worker is taken for frozen.

    def end(self) -> None:
        """Leave the generation; wait a little for the numbers of its last steps."""
        until_s = self._clock() + END_S
        try:
            self._begin_fetch()
            while self._waiting and self._clock() < until_s:
                time.sleep(0.001)
                self._begin_fetch()
        except RuntimeError as exc:
            self._fail(exc)  # A device that failed is why this generation is left.
        with self._lock:
            self._waiting.clear()
            self._fetch = None
        self._sender.end()

    def _take_numbers(self, step: int, given: Mapping[str, float | torch.Tensor]) -> None:
        at_s = self._wall_clock()
        numbers: list[float] = []
        for value in given.values():
            if isinstance(value, torch.Tensor):
                if not _is_here(value):
                    break
                value = float(value)
            numbers.append(value)
        if len(numbers) == len(given):
            self._waiting.append(_Step(step, at_s, tuple(given), numbers))
        else:
            self._wait(_Step(step, at_s, tuple(given), None, [_read(v) for v in given.values()]))

    def _take_histograms(self, step: int, histograms: Mapping[str, torch.Tensor]) -> None:
        parts: list[float | torch.Tensor] = []
        for tensor in histograms.values():
            row = counted(tensor)
            parts += row.tolist() if _is_here(row) else [row]
        at_s, names = self._wall_clock(), tuple(histograms)
        numbers = [part for part in parts if not isinstance(part, torch.Tensor)]
        if len(numbers) == len(parts):
            self._waiting.append(_Step(step, at_s, names, numbers, is_histogram=True))
        else:
            self._wait(_Step(step, at_s, names, None, parts, is_histogram=True))

    def _wait(self, step: _Step) -> None:
        """Queue a step until its numbers on a device have arrived."""
        self._waiting.append(step)
        self._is_on_device = True

    def _shorten(self) -> None:
        """Make room if nobody polls, or a device stands still."""
        self._send_arrived()
        with self._lock:
            if len(self._waiting) >= WAITING_LIMIT and self._fetch is None:
                self._waiting.popleft()

    def _fail(self, exc: Exception) -> None:
        with self._lock:
            here = [step for step in self._waiting if step.values is not None]
            self._waiting.clear()
            self._waiting.extend(here)
            self._fetch, self._is_on_device = None, False
        if not self._has_failed:
            self._has_failed = True
            with suppress(OSError, ValueError):  # Where stderr goes has no room, or is closed.
                self._say(f"elasticd: TensorBoard: numbers of a step were left out: {exc}\n")

    def _send(self, step: _Step, values: list[float]) -> None:
        send = self._sender.histograms if step.is_histogram else self._sender.scalars
        send(step.step, step.at_unix_s, step.names, values)

    def _begin_fetch(self) -> None:
        """Begin to copy all numbers on a device; the training thread calls this."""
        with self._lock:
            if self._fetch is None and self._is_on_device:
                self._is_on_device = False
                self._fetch = _Fetch([step for step in self._waiting if step.values is None])
                self._fetch_s = self._clock() + FETCH_EVERY_S
        self._send_arrived()

    def _send_arrived(self) -> None:
        """Pass on the steps whose numbers are here, in the order of the commits."""
        with self._lock:
            fetch = self._fetch
            if fetch is not None and fetch.is_here():
                fetch.take()
                self._fetch = None
            while self._waiting and (values := self._waiting[0].values) is not None:
                self._send(self._waiting.popleft(), values)


def _is_here(value: torch.Tensor) -> bool:
    return value.is_cpu


def _read(value: float | torch.Tensor) -> float | torch.Tensor:
    """Read a number on the host; for a number on a device return a copy."""
    if not isinstance(value, torch.Tensor):
        return value
    if _is_here(value):
        return float(value)
    # A captured graph writes the next loss into the same place.
    return value.detach().clone()

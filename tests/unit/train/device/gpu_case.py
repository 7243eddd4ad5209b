"""Stands for CUDA and NCCL: takes note of every call, its arguments, its thread and its order."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

__all__ = ["FakeEvent", "FakeGpu", "FakeStream"]


class FakeStream:
    """One of a device's; what is queued on it is done when `is_done`."""

    def __init__(self, gpu: "FakeGpu", device: torch.device, name: str) -> None:
        self._gpu, self.device, self.name = gpu, device, name
        self.is_done = True

    def wait_stream(self, other: "FakeStream") -> None:
        self._gpu.note("wait_stream", self.name, other.name)

    def wait_event(self, event: "FakeEvent") -> None:
        self._gpu.note("wait_event", self.name, event.stream.name)

    def synchronize(self) -> None:
        self._gpu.note("synchronize", self.name)


class FakeEvent:
    def __init__(self, gpu: "FakeGpu") -> None:
        self._gpu = gpu
        self.stream: Any = None

    def record(self, stream: FakeStream) -> None:
        self.stream = stream
        self._gpu.note("record", stream.name)

    def query(self) -> bool:
        self._gpu.queries.append((self._gpu.capture_mode(), self._gpu.current_device()))
        return bool(self.stream.is_done)


class FakeGpu:
    """A process that has its own GPU, and torch with NCCL."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, own: int = 1) -> None:
        self.own = torch.device("cuda", own)
        self.calls: list[tuple[Any, ...]] = []
        self.threads: list[str] = []
        self.before_abort: Callable[[], object] = lambda: None
        self.after_init: Callable[[], object] = lambda: None
        self.streams = {self.own: FakeStream(self, self.own, f"compute {own}")}
        self.side = FakeStream(self, self.own, "side")
        self.entered: list[torch.device] = []
        """What was made a thread's current device for a while."""
        self.is_capturing = False
        self.queries: list[tuple[int, int]] = []
        """With what mode for captures of others, and with what current device, events were
        asked for."""
        self._thread = threading.local()
        patch = monkeypatch.setattr
        patch(torch.cuda, "device", self._on)
        patch(torch.cuda, "is_current_stream_capturing", lambda: self.is_capturing)
        patch("elasticd.tensors.cuda._capture_mode_exchange", lambda: self._exchange)
        patch(torch.cuda, "Event", lambda *args, **kwargs: FakeEvent(self))
        patch(torch.cuda, "current_stream", lambda device: self.streams[device])
        patch("elasticd.tensors.cuda.is_used", lambda: True)
        patch(dist, "init_process_group", self._init)
        patch(dist, "destroy_process_group", lambda *args: self.note("destroy"))
        patch(dist, "all_reduce", lambda tensor: self.note("all_reduce", tensor.device))
        zeros = torch.zeros

        def made(*shape: int, device: Any = None) -> Any:
            is_gpu = torch.device(device or "cpu").type == "cuda"
            return SimpleNamespace(device=device) if is_gpu else zeros(*shape)

        patch(torch, "zeros", made)
        patch(distributed_c10d, "_abort_process_group", self._abort)

    def note(self, *call: Any) -> None:
        self.calls.append(call)
        self.threads.append(threading.current_thread().name)

    @property
    def compute(self) -> FakeStream:
        """The stream that the script's thread computes on."""
        return self.streams[self.own]

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def capture_mode(self) -> int:
        """Return this thread's mode, as the driver numbers them: 0 is the one it begins with."""
        return getattr(self._thread, "mode", 0)

    def current_device(self) -> int:
        """Return this thread's current device: the first one, unless it chose another."""
        return getattr(self._thread, "device", 0)

    @contextmanager
    def _on(self, device: torch.device) -> Iterator[None]:
        self.entered.append(device)
        before, self._thread.device = self.current_device(), device.index
        yield
        self._thread.device = before

    def _exchange(self, pointer: Any) -> int:
        before, self._thread.mode = self.capture_mode(), pointer._obj.value
        pointer._obj.value = before
        return 0

    def _init(self, backend: str, **options: Any) -> None:
        self.note("init", backend, options)
        group: Any = SimpleNamespace(
            rank=lambda: 0, name=lambda: "nccl", _get_sequence_number_for_group=lambda: 0
        )
        distributed_c10d._update_default_pg(group)
        self.after_init()

    def _abort(self, group: Any = None) -> None:
        self.note("abort", group is distributed_c10d._world.default_pg)
        self.before_abort()
        distributed_c10d._update_default_pg(None)

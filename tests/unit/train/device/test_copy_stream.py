"""A snapshot of a GPU is the state of its commit, and the CPU waits for no copy of it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from elasticd.train.device import copy_stream, pinned_memory
from elasticd.train.device.pinned_memory import Pinned
from elasticd.train.save.overlapped_copy import OverlappedCopy
from tests.fixtures.patience import patience_s
from tests.unit.train.device.gpu_case import FakeGpu, FakeStream

LIMIT_S = patience_s(20.0)


class OnGpu:
    """Stands for a tensor on a GPU, and for the place that it is copied to."""

    nbytes = 4
    is_cuda = True

    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self._gpu, self.name, self.device = gpu, name, gpu.own
        self._version = 0

    def is_inference(self) -> bool:
        return False

    def copy_(self, source: "OnGpu", *, non_blocking: bool) -> None:
        self._gpu.note("copy", source.name, self._gpu.streams[self.device].name, non_blocking)

    def record_stream(self, stream: FakeStream) -> None:
        self._gpu.note("record_stream", self.name, stream.name)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    gpu = FakeGpu(monkeypatch)
    compute, side = gpu.compute, gpu.side

    class Within:
        """torch.cuda.stream"""

        def __init__(self, stream: FakeStream) -> None:
            gpu.streams[gpu.own] = stream

        def __enter__(self) -> None: ...
        def __exit__(self, *unused: object) -> None:
            gpu.streams[gpu.own] = compute

    made: list[torch.device] = []

    def stream(device: torch.device) -> FakeStream:
        made.append(device)
        return side

    monkeypatch.setattr(torch.cuda, "stream", Within)
    monkeypatch.setattr(torch.cuda, "Stream", stream)
    copy_stream._stream.cache_clear()
    side.is_done = False
    yield gpu
    side.is_done = True
    copy_stream._stream.cache_clear()
    assert made in ([], [gpu.own])


def begun(gpu: FakeGpu, said: list[bool]) -> tuple[OverlappedCopy, list[OnGpu]]:
    buffer, weight = (OnGpu(gpu, name) for name in ("buffer", "weight"))
    later: Any = [(weight, weight)]
    now: Any = [(buffer, buffer)]
    return OverlappedCopy(later, said.append, now=now, is_pinned=True), [buffer, weight]


def test_copies_are_queued_in_the_order_that_makes_them_one_commit(gpu: FakeGpu) -> None:
    """Behind the optimizer's kernels; buffers before the next forward pass; no call waits."""
    overlap, _ = begun(gpu, [])
    assert gpu.calls == [
        ("copy", "buffer", "compute 1", True),
        ("wait_stream", "side", "compute 1"),
        ("copy", "weight", "side", True),
        ("record_stream", "weight", "side"),
        ("record", "side"),
    ]
    gpu.side.is_done = True
    overlap.finish()


def test_next_step_waits_on_the_device_and_the_cpu_does_not(gpu: FakeGpu) -> None:
    """It is told when the copies are done, and good although the optimizer has written since."""
    said: list[bool] = []
    overlap, (_, weight) = begun(gpu, said)
    del gpu.calls[:]
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter], lr=0.1).step()
    assert gpu.calls == [("wait_event", "compute 1", "side")] and not said
    weight._version += 1  # The optimizer's own kernel, queued behind the copy.
    gpu.side.is_done = True
    overlap.finish()
    assert said == [True]


def test_write_before_the_next_step_makes_it_no_snapshot(gpu: FakeGpu) -> None:
    """Nothing orders such a write after the copy."""
    said: list[bool] = []
    overlap, (_, weight) = begun(gpu, said)
    weight._version += 1
    overlap._hold()
    gpu.side.is_done = True
    overlap.finish()
    assert said == [False]


def test_what_an_optimizer_keeps_on_the_host_is_copied_before_it_steps(gpu: FakeGpu) -> None:
    """AdamW counts its steps there, and adds at once."""
    count, place = torch.tensor(3.0), torch.zeros(())
    weight = OnGpu(gpu, "weight")
    later: Any = [(weight, weight), (count, place)]
    overlap = OverlappedCopy(later, lambda is_good: None, is_pinned=True)
    overlap._hold()
    assert place == 3.0
    gpu.side.is_done = True
    overlap.finish()


def test_without_pinned_memory_it_is_copied_at_once(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the script's own stream, which is where the optimizer's kernels are."""
    copied: list[Any] = []
    monkeypatch.setattr("elasticd.train.save.overlapped_copy.copy_now", copied.extend)
    said: list[bool] = []
    buffer, weight = (OnGpu(gpu, name) for name in ("buffer", "weight"))
    later: Any = [(weight, weight)]
    now: Any = [(buffer, buffer)]
    OverlappedCopy(later, said.append, now=now).finish()
    assert copied == [*now, *later] and gpu.calls == [] and said == [True]


# --- memory that the card writes to -------------------------------------------------------------


def runtime(registered: dict[int, tuple[int, int]], error: int = 0) -> Any:
    """Stands for libcudart."""

    def register(address: int, size: int, flags: int) -> int:
        if not error:
            registered[address] = (size, flags)
        return error

    return SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=registered.pop)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    entered: list[torch.device] = []

    class On:
        def __init__(self, device: torch.device) -> None:
            entered.append(device)

        def __enter__(self) -> None: ...
        def __exit__(self, *unused: object) -> None: ...

    monkeypatch.setattr(torch.cuda, "device", On)
    return entered


def test_memory_is_registered_as_long_as_it_is_held(
    monkeypatch: pytest.MonkeyPatch, devices: list[torch.device]
) -> None:
    """For all devices, by the worker's own; and given back before it is unmapped."""
    registered: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime(registered))
    memory = bytearray(4096)
    own = torch.device("cuda", 2)
    held = Pinned(memoryview(memory), own)
    assert held.is_pinned and devices == [own]
    assert list(registered.values()) == [(4096, 1)]
    del held
    assert registered == {}


def test_memory_that_cannot_be_registered_is_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch, devices: list[torch.device]
) -> None:
    """And CUDA's last error is asked for, or the script's next kernel would be blamed."""
    asked: list[torch.device] = []

    def zeros(*shape: int, device: torch.device) -> None:
        asked.append(device)
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime({}, error=2))
    monkeypatch.setattr(pinned_memory, "torch", SimpleNamespace(**{**vars(torch), "zeros": zeros}))
    own = torch.device("cuda", 2)
    assert not Pinned(memoryview(bytearray(8)), own).is_pinned and asked == [own]


def test_no_memory_is_not_registered(devices: list[torch.device]) -> None:
    """A rank may have no share."""
    assert not Pinned(memoryview(b""), torch.device("cuda", 0)).is_pinned and not devices

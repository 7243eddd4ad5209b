"""Threads beside the training one ask for events without harm to a CUDA graph that it captures."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from elasticd.tensors import cuda
from elasticd.train.device.copy_stream import CopyStream
from elasticd.train.device.pinned_memory import Pinned
from elasticd.train.process_group.device_progress import DeviceProgress
from tests.unit.train.device.gpu_case import FakeGpu

GLOBAL, THREAD_LOCAL = 0, 1
"""The driver's numbers (CUstreamCaptureMode)."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return FakeGpu(monkeypatch)


def test_event_is_asked_for_as_one_that_no_capture_of_others_concerns(gpu: FakeGpu) -> None:
    """And on its own device: on the first one the call would open a context."""
    event = cuda.mark(gpu.own)
    assert cuda.is_done(event, gpu.own)
    gpu.compute.is_done = False
    assert not cuda.is_done(event, gpu.own)
    assert gpu.queries == [(THREAD_LOCAL, gpu.own.index)] * 2
    assert (gpu.capture_mode(), gpu.current_device()) == (GLOBAL, 0), "the thread is as it was"


def test_mode_is_given_back_when_the_device_has_failed(gpu: FakeGpu) -> None:
    """The training thread may be the one that asked."""
    modes: list[int] = []

    class Failed:
        def query(self) -> bool:
            modes.append(gpu.capture_mode())
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal"):
        cuda.is_done(Failed(), gpu.own)
    assert modes == [THREAD_LOCAL] and gpu.capture_mode() == GLOBAL


def test_mode_that_could_not_be_changed_is_not_changed_back(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the thread would keep the mode that it never got."""
    tried: list[int] = []

    def refuse(pointer: object) -> int:
        tried.append(1)
        return 201  # CUDA_ERROR_INVALID_CONTEXT

    monkeypatch.setattr(cuda, "_capture_mode_exchange", lambda: refuse)
    assert cuda.is_done(cuda.mark(gpu.own), gpu.own) and tried == [1]


def test_without_a_driver_an_event_is_asked_for_as_it_is(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another name, for one; and none is loaded for it."""
    monkeypatch.setattr(cuda, "_capture_mode_exchange", lambda: None)
    assert cuda.is_done(cuda.mark(gpu.own), gpu.own) and gpu.queries == [(GLOBAL, gpu.own.index)]


def test_driver_that_is_not_loaded_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dlopen` is told so, since a library of this name may be on a machine without a card."""
    modes: list[int] = []

    def load(name: str, mode: int) -> object:
        modes.append(mode)
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    cuda._capture_mode_exchange.cache_clear()
    assert cuda._capture_mode_exchange() is None
    cuda._capture_mode_exchange.cache_clear()
    assert [mode & 4 for mode in modes] == [4], "RTLD_NOLOAD"


def test_copy_is_waited_for_beside_a_capture(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that waits for a snapshot asks a thousand times a second."""
    copy = CopyStream.__new__(CopyStream)
    copy._device, copy._event = gpu.own, cuda.mark(gpu.own)
    copy.wait()
    assert gpu.queries == [(THREAD_LOCAL, gpu.own.index)]


def test_memory_is_registered_and_given_back_beside_a_capture(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread takes memory ahead while the first steps run, and any thread may let go of it."""
    called: list[tuple[str, int, int]] = []

    def register(address: int, size: int, flags: int) -> int:
        called.append(("register", gpu.capture_mode(), gpu.current_device()))
        return 0

    def unregister(address: int) -> int:
        called.append(("unregister", gpu.capture_mode(), gpu.current_device()))
        return 0

    runtime = SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    held = Pinned(memoryview(bytearray(8)), gpu.own)
    assert held.is_pinned
    del held
    aside = THREAD_LOCAL, gpu.own.index
    assert called == [("register", *aside), ("unregister", *aside)]


def test_backward_pass_in_a_graph_leaves_no_event_that_somebody_asks_for(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask for an event of a capture makes that fail, whatever the thread's mode."""
    monkeypatch.setattr(torch.nn.Parameter, "is_cuda", True, raising=False)
    net = torch.nn.Linear(2, 2)
    arrival = DeviceProgress(gpu.own)
    arrival.watch([torch.optim.SGD(net.parameters())])
    gpu.is_capturing, gpu.compute.is_done = True, False
    net(torch.ones(1, 2)).sum().backward()
    assert arrival.count(2) == 2 and gpu.calls == [] and gpu.queries == []
    gpu.is_capturing = False
    net(torch.ones(1, 2)).sum().backward()
    assert arrival.count(2) == 0 and gpu.queries == [(THREAD_LOCAL, gpu.own.index)]
    arrival.close()

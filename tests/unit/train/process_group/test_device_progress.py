"""Of ranks that have begun the same collectives, the one whose device lags behind is known."""

from typing import Any

import pytest
import torch

from elasticd.train.process_group.device_progress import DeviceProgress
from tests.unit.train.device.gpu_case import FakeGpu


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return FakeGpu(monkeypatch)


def watched(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> tuple[DeviceProgress, torch.nn.Linear]:
    """A model whose parameters count as a GPU's; the backward pass is the CPU's."""
    monkeypatch.setattr(torch.nn.Parameter, "is_cuda", True, raising=False)
    net = torch.nn.Linear(2, 2)
    arrival = DeviceProgress(gpu.own)
    arrival.watch([torch.optim.SGD(net.parameters())])
    return arrival, net


def test_rank_whose_own_kernels_hang_has_come_to_less(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CPU has begun as many as all others."""
    arrival, net = watched(gpu, monkeypatch)
    arrival.completed(7)
    gpu.compute.is_done = False
    net(torch.ones(1, 2)).sum().backward()
    assert gpu.calls == [("record", "compute 1")]
    assert arrival.count(9) == 7
    gpu.compute.is_done = True
    assert arrival.count(9) == 9, "as a rank says that waits for the others"
    arrival.close()


def test_before_any_gradient_what_was_begun_counts(gpu: FakeGpu) -> None:
    """And for ever where there is no parameter on a GPU to look at."""
    arrival = DeviceProgress(gpu.own)
    arrival.watch([torch.optim.SGD(torch.nn.Linear(1, 1).parameters())])
    assert arrival.count(3) == 3
    arrival.close()


def test_device_that_has_failed_is_not_asked_in_vain(gpu: FakeGpu) -> None:
    """The beating thread goes on; the training thread will meet the error."""

    class Failed:
        def query(self) -> bool:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    arrival: Any = DeviceProgress(gpu.own)
    arrival._event = Failed()
    assert arrival.count(4) == 4


def test_nothing_is_left_on_the_parameter(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each generation has its own."""
    arrival, net = watched(gpu, monkeypatch)
    arrival.close()
    arrival.close()
    net(torch.ones(1, 2)).sum().backward()
    assert gpu.calls == [] and arrival.count(2) == 2

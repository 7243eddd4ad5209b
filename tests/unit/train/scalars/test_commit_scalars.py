"""Numbers on a GPU are known when their copies have come, and never waited for."""

from typing import Any

import pytest
import torch

from elasticd.errors import CallError
from elasticd.train.scalars.commit_scalars import CommitScalars
from tests.unit.train.device.gpu_case import FakeGpu


class Fetched:
    """Stands for a tensor on the worker's GPU."""

    is_cuda = True
    dtype = torch.float32

    def __init__(self, gpu: FakeGpu, value: float) -> None:
        self.device, self.value = gpu.own, value

    def reshape(self, shape: tuple[()]) -> "Fetched":
        return self


class Pinned:
    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu

    def copy_(self, source: Fetched, *, non_blocking: bool) -> float:
        self._gpu.note("copy", non_blocking)
        return source.value


def test_a_number_is_known_when_its_copy_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is of the device that the number is on, after the copy."""
    gpu = FakeGpu(monkeypatch, own=2)
    monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: Pinned(gpu))
    monkeypatch.setattr("elasticd.train.scalars.commit_scalars.torch.Tensor", Fetched)
    scalars = CommitScalars()
    gpu.compute.is_done = False
    given: Any = {"loss": Fetched(gpu, 0.5)}
    scalars.set(given, 1, None)
    assert gpu.calls == [("copy", True), ("record", "compute 2")]
    assert scalars.known() == {}
    gpu.compute.is_done = True
    assert scalars.known() == {"loss": 0.5}


def test_number_that_no_float_holds_is_refused() -> None:
    """In one sentence, as everything that is none."""
    with pytest.raises(CallError, match=r"commit\(tokens=\.\.\.\) got a number that no float"):
        CommitScalars().checked({"tokens": 10**400})


def test_number_of_the_host_is_that_of_the_commit_though_the_script_adds_to_it() -> None:
    """A running sum that goes on in the same tensor."""
    scalars, total = CommitScalars(), torch.tensor(2.0, requires_grad=True)
    scalars.set(scalars.checked({"total": total}), 1, None)
    with torch.no_grad():
        total += 1
    assert scalars.known() == {"total": 2.0}


def test_whole_number_in_a_tensor_is_given_as_a_float() -> None:
    assert CommitScalars().checked({"n": torch.tensor([3])}) == {"n": 3.0}


def test_complex_number_and_several_numbers_are_refused() -> None:
    with pytest.raises(CallError, match="no real number"):
        CommitScalars().checked({"z": torch.tensor(1j)})
    with pytest.raises(CallError, match="give one number"):
        CommitScalars().checked({"z": torch.zeros(2)})

"""A worker's device is the GPU of its slot, or the CPU; what cannot be is refused."""

from collections.abc import Iterator

import pytest
import torch

from elasticd.errors import EnvironmentProblem
from elasticd.train.device.device import CPU, device, use_device


class Machine:
    """Stands for torch's view of the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.current: list[torch.device] = []
        monkeypatch.setattr(torch.cuda, "set_device", self.current.append)
        for name in ("LOCAL_RANK", "ELASTICD_SLOT", "ELASTICD_GPUS", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)

    def shows(self, gpus: int, *, cuda: str | None = "12.4", hip: str | None = None) -> None:
        self._patch.setattr(torch.cuda, "device_count", lambda: gpus)
        self._patch.setattr(torch.version, "cuda", cuda)
        self._patch.setattr(torch.version, "hip", hip)

    def tells(self, **env: object) -> None:
        for name, value in env.items():
            self._patch.setenv(name, str(value))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    device.cache_clear()
    yield Machine(monkeypatch)
    device.cache_clear()


def cuda(index: int) -> torch.device:
    return torch.device("cuda", index)


def test_worker_of_a_world_takes_the_gpu_at_its_place(machine: Machine) -> None:
    """It sees those of its world's slots, and LOCAL_RANK says which of them is its own."""
    machine.shows(2)
    machine.tells(LOCAL_RANK=1, ELASTICD_SLOT=3, ELASTICD_GPUS=4)
    assert device() == cuda(1)


def test_replacement_takes_the_only_gpu_that_it_sees(machine: Machine) -> None:
    """It knows no rank yet, and its agent shows it the GPU of its slot alone."""
    machine.shows(1)
    machine.tells(ELASTICD_SLOT=3, ELASTICD_GPUS=4)
    assert device() == cuda(0)


@pytest.mark.parametrize("hip", [None, "6.2"])
def test_without_a_mask_the_slot_is_the_number(machine: Machine, hip: str | None) -> None:
    """Where the agent could count no GPUs, a replacement must not take the first one."""
    machine.shows(4, cuda=None if hip else "12.4", hip=hip)
    machine.tells(ELASTICD_SLOT=2, LOCAL_RANK=0)
    assert device() == cuda(2)


def test_without_an_agent_it_is_as_torchrun_has_it(machine: Machine) -> None:
    """In a notebook the first GPU."""
    machine.shows(2)
    assert device() == cuda(0)
    device.cache_clear()
    machine.tells(LOCAL_RANK=1)
    assert device() == cuda(1)


def test_gpu_that_is_gone_is_no_reason_to_train_on_the_cpu(machine: Machine) -> None:
    """Nobody would hear of it, and the other ranks would wait for this one."""
    machine.shows(0)
    machine.tells(ELASTICD_SLOT=1, ELASTICD_GPUS=4, CUDA_VISIBLE_DEVICES=1)
    with pytest.raises(EnvironmentProblem, match=r"has 4 GPUs.*CUDA_VISIBLE_DEVICES=1.*nvidia-smi"):
        device()


def test_torch_without_cuda_trains_on_the_cpu_and_says_so(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever installed that build has chosen."""
    machine.shows(0, cuda=None)
    machine.tells(ELASTICD_SLOT=0, ELASTICD_GPUS=1)
    assert device() == device() == CPU
    assert capsys.readouterr().err.count("built without CUDA") == 1


@pytest.mark.parametrize("visible", [0, 1, 4])
def test_more_workers_than_gpus_are_refused(machine: Machine, visible: int) -> None:
    """Two ranks on one card would be refused by NCCL, and later."""
    machine.shows(visible)
    machine.tells(ELASTICD_SLOT=4, ELASTICD_GPUS=4, LOCAL_RANK=4)
    with pytest.raises(EnvironmentProblem, match="slot 4 on a node with 4 GPUs"):
        device()


def test_slot_beyond_what_torch_sees_is_refused(machine: Machine) -> None:
    """Also where the agent could count none."""
    machine.shows(2)
    machine.tells(ELASTICD_SLOT=2)
    with pytest.raises(EnvironmentProblem, match=r"worker 2 .* shows it 2 GPUs"):
        device()


def test_own_gpu_becomes_the_current_one(machine: Machine) -> None:
    """Whatever names no device then speaks of it, and no context is opened on another."""
    machine.shows(4)
    machine.tells(LOCAL_RANK=3, ELASTICD_SLOT=3, ELASTICD_GPUS=4)
    assert use_device() == cuda(3)
    assert machine.current == [cuda(3)]


def test_on_a_cpu_cuda_is_not_asked_for(machine: Machine) -> None:
    """To set a device of a torch without CUDA raises."""
    machine.shows(0, cuda=None)
    assert use_device() == CPU and machine.current == []


def test_no_number_is_read_from_nonsense(machine: Machine) -> None:
    """The script's environment may hold anything."""
    machine.shows(2)
    machine.tells(LOCAL_RANK="one", ELASTICD_SLOT="-")
    assert device() == cuda(0)

"""A source's threads serve what the script's kernels have written, not what they will write."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from elasticd.tensors import cuda
from elasticd.tensors.tree import flatten
from elasticd.train.sync.state_server import StateServer
from tests.fixtures.ranks import HOST


def test_devices_are_waited_for_before_anything_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever streams the script has used: the threads' own wait for none of them."""
    waited: list[list[torch.Tensor]] = []
    monkeypatch.setattr(cuda, "synchronize", lambda tensors: waited.append(list(tensors)))
    tree = flatten("state", {"w": torch.ones(3), "v": [torch.zeros(2)]})
    with StateServer(tree, address=HOST, generation=1):
        assert len(waited) == 1 and len(waited[0]) == 2


def test_each_device_of_the_state_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the CPU is none."""

    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    devices = [torch.device("cuda", index) for index in (0, 0, 1)]
    tensors: list[Any] = [SimpleNamespace(is_cuda=True, device=device) for device in devices]
    cuda.synchronize([*tensors, torch.zeros(1)])
    assert sorted(waited, key=str) == [torch.device("cuda", 0), torch.device("cuda", 1)]

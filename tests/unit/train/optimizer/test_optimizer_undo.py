"""Where the copy of what an optimizer owns is made if it is on GPUs, and what is said of it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from elasticd.train.optimizer import optimizer_undo as module
from elasticd.train.optimizer.optimizer_undo import OptimizerUndo
from tests.unit.train.device.gpu_case import FakeGpu

GIB = 1 << 30
OTHER = torch.device("cuda", 0)
CPU = torch.device("cpu")


class OnDevice:
    """Stands for a tensor; memory on its device is no tensor's either."""

    def __init__(self, device: torch.device, nbytes: int) -> None:
        self.device, self.nbytes = device, nbytes
        self.is_cuda = device.type == "cuda"


class Card(FakeGpu):
    """Has so much memory that nobody has reserved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, own=1)
        self.free = {self.own: 0, OTHER: 0}
        monkeypatch.setattr(torch.cuda, "mem_get_info", self._asked)
        monkeypatch.setattr(torch, "empty_like", self._made)
        monkeypatch.setattr(torch, "_foreach_copy_", self._copied)
        monkeypatch.setattr(module, "memory_of", lambda tensor: tensor)

    def _asked(self, device: torch.device) -> tuple[int, int]:
        self.note("mem_get_info", device)
        return self.free[device], 80 * GIB

    def _made(self, tensor: Any, *, device: Any) -> OnDevice:
        place = torch.device(device)
        self.note("empty_like", place)
        return OnDevice(place, tensor.nbytes)

    def _copied(self, into: list[OnDevice], values: list[OnDevice]) -> None:
        self.note("copy", [each.device for each in into], [each.device for each in values])


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch)


def undo_of(*tensors: OnDevice) -> OptimizerUndo:
    optimizer: Any = SimpleNamespace(param_groups=[{"params": list(tensors)}], state={})
    return OptimizerUndo(optimizer)


def test_copy_is_on_the_card_if_that_keeps_a_gib_for_others(
    card: Card, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the copies take in all is counted; a byte less, and there is no room."""
    tensors = [OnDevice(card.own, 2 * GIB), OnDevice(card.own, GIB)]
    card.free[card.own] = 4 * GIB
    undo = undo_of(*tensors)
    undo.take(is_required=False)
    assert undo.is_valid
    assert card.calls == [
        ("mem_get_info", card.own),
        ("empty_like", card.own),
        ("empty_like", card.own),
        ("copy", [card.own] * 2, [card.own] * 2),
    ]
    card.free[card.own] -= 1
    another = undo_of(*tensors)
    another.take(is_required=False)
    assert not another.is_valid
    assert card.calls[4:] == [("mem_get_info", card.own)]
    assert capfd.readouterr().err == ""


def test_memory_is_taken_once(card: Card) -> None:
    """The card has less room afterwards, and no other copy is needed."""
    card.free[card.own] = 4 * GIB
    undo = undo_of(OnDevice(card.own, 3 * GIB))
    undo.take(is_required=False)
    card.free[card.own] = 0
    undo.drop()
    undo.take(is_required=True)
    assert undo.is_valid
    assert card.names() == ["mem_get_info", "empty_like", "copy", "copy"]


def test_copy_that_must_be_made_is_the_hosts_where_the_card_is_full(
    card: Card, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of each card by itself, and the sentence names the one that is full."""
    card.free = {card.own: 2 * GIB, OTHER: 2 * GIB}
    undo = undo_of(OnDevice(card.own, 3 * GIB // 2), OnDevice(OTHER, GIB), OnDevice(CPU, 9 * GIB))
    undo.take(is_required=True)
    assert undo.is_valid
    assert card.calls == [
        ("mem_get_info", card.own),
        ("mem_get_info", OTHER),
        ("empty_like", CPU),
        ("empty_like", OTHER),
        ("empty_like", CPU),
        ("copy", [CPU, OTHER, CPU], [card.own, OTHER, CPU]),
    ]
    said = capfd.readouterr().err
    assert said.startswith("elasticd: cuda:1 has no room for 1.5 GiB, a copy of what an optimizer")
    assert "made on the host" in said and said.count("\n") == 1 and "cuda:0" not in said


def test_copy_of_what_is_on_the_host_asks_no_card(card: Card) -> None:
    undo = undo_of(OnDevice(CPU, 100 * GIB))
    undo.take(is_required=False)
    assert undo.is_valid
    assert card.names() == ["empty_like", "copy"]


def test_copy_without_room_gives_the_memory_of_the_one_before_back(card: Card) -> None:
    """Other tensors are to be copied (the first step made the state), and the card is full now."""
    card.free[card.own] = 4 * GIB
    tensors = [OnDevice(card.own, GIB)]
    optimizer: Any = SimpleNamespace(param_groups=[{"params": tensors}], state={})
    undo = OptimizerUndo(optimizer)
    undo.take(is_required=False)
    assert undo._copies
    tensors.append(OnDevice(card.own, GIB))
    card.free[card.own] = GIB
    undo.take(is_required=False)
    assert not undo.is_valid and not undo._copies


def test_number_that_an_optimizer_keeps_beside_its_parameters_is_put_back() -> None:
    """It ended the training with an AttributeError at the first copy."""
    parameter = torch.zeros(2, requires_grad=True)
    optimizer: Any = torch.optim.SGD([parameter], 0.1)
    optimizer.state["seen"], optimizer.state["all"] = 1, {"norms": [2.0]}
    undo = OptimizerUndo(optimizer)
    undo.take(is_required=True)
    optimizer.state["seen"] = 2
    optimizer.state["all"]["norms"].append(3.0)
    undo.put_back()
    assert dict(optimizer.state) == {"seen": 1, "all": {"norms": [2.0]}}

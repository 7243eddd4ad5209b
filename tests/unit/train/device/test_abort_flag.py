"""The flag is up before anything wakes, and a look at it is a copy in the order of a stream."""

from typing import Any

import pytest
import torch

from elasticd.tensors import cuda
from elasticd.train.device import abort_flag
from elasticd.train.device.abort_flag import AbortFlag
from elasticd.train.device.device import CPU
from elasticd.train.group_broken import GroupBroken
from elasticd.train.process_group.group import Group
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import entered
from tests.unit.train.device.gpu_case import FakeGpu


class Mark:
    """A place in the stream of a double, with so many collectives before it."""

    def __init__(self, begun: int | None, *, is_done: bool = True) -> None:
        self.begun, self._is_done = begun, is_done

    def query(self) -> bool:
        return self._is_done


class Number:
    """A number in one memory, whose copies are noted."""

    def __init__(self, gpu: FakeGpu, place: str) -> None:
        self._gpu, self.place = gpu, place
        self.value = 0.0

    def fill_(self, value: float) -> None:
        self._gpu.note("fill", self.place, value)
        self.value = value

    def copy_(self, other: "Number", *, non_blocking: bool) -> None:
        self._gpu.note("copy", other.place, self.place, non_blocking)
        self.value = other.value

    def __float__(self) -> float:
        return self.value


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """A GPU with memory for numbers."""
    made = FakeGpu(monkeypatch)
    monkeypatch.setattr(abort_flag, "_host_number", lambda _: Number(made, "pinned"))
    monkeypatch.setattr(abort_flag, "_device_number", lambda _: Number(made, "card"))
    return made


def test_look_is_two_copies_that_the_host_does_not_wait_for(gpu: FakeGpu) -> None:
    """To the card and back, and then the mark; the optimizer reads the card's number."""
    flag = AbortFlag(gpu.own)
    reading: Any = flag.read()
    assert gpu.calls == [
        ("copy", "pinned", "card", True),
        ("copy", "card", "pinned", True),
        ("record", "compute 1"),
    ]
    assert reading.found_inf.place == "card"
    gpu.compute.is_done = False
    assert not reading.query()
    gpu.compute.is_done = True
    assert reading.query() and not reading.is_set()
    flag.set()
    assert flag.read().is_set() and not reading.is_set(), "each look has numbers of its own"


def test_number_is_one_that_torch_subtracts_from_the_counts_of_steps() -> None:
    """They have no dimension, and one with a dimension would not fit."""
    flag = AbortFlag(CPU)
    assert flag.read().found_inf.shape == () and flag.read().found_inf.dtype is torch.float32
    assert not flag.read().is_set() and flag.read().query()
    before = flag.read()
    flag.set()
    assert flag.read().is_set() and not before.is_set()


def made(gpu: FakeGpu, flag: AbortFlag | None = None) -> Group:
    on_abort = flag.set if flag is not None else None
    limit_s = patience_s(20.0)
    return Group(entered(0, 1, 0), device=gpu.own, timeout_s=limit_s, on_abort=on_abort)


def test_flag_is_up_before_nccl_is_aborted(gpu: FakeGpu) -> None:
    """The kernels behind the collectives run as soon as those end."""
    group = made(gpu, AbortFlag(gpu.own))
    group.form()
    del gpu.calls[:]
    group.abort()
    group.close()
    assert gpu.names()[0] == "fill" and "abort" in gpu.names()


def test_flag_is_up_before_a_planned_end(gpu: FakeGpu) -> None:
    """It aborts the collectives of a step that no commit followed, as well."""
    group = made(gpu, AbortFlag(gpu.own))
    group.form()
    del gpu.calls[:]
    group.close()
    assert gpu.names() == ["fill", "abort"]


def test_wait_for_a_mark_is_not_for_what_was_queued_later(gpu: FakeGpu) -> None:
    """The optimizer's kernels, which the host need not see done."""
    group = made(gpu)
    group.form()
    mark = Mark(0)
    del gpu.calls[:]
    group.synchronize(lambda: True, mark)
    assert gpu.calls == [], "it makes no mark of its own"
    group.abort()
    with pytest.raises(GroupBroken):
        group.synchronize(lambda: True, mark)
    group.close()


def test_look_at_the_peers_settles_nothing(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device has come to no more collectives by it."""
    completed: list[int] = []
    group = made(gpu)
    group.form()
    monkeypatch.setattr(group.arrival, "completed", completed.append)
    group.synchronize(lambda: True, cuda.NOTHING)
    assert completed == []
    group.synchronize(lambda: True)
    assert completed == [0]
    group.close()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many collectives the default group has begun; a test may change the number."""
    found = [7]
    monkeypatch.setattr(Group, "sequence", lambda _: found[0])
    monkeypatch.setattr(torch.nn.Parameter, "is_cuda", True, raising=False)
    return found


def test_wait_for_a_mark_settles_no_collective_that_came_later(
    gpu: FakeGpu, begun: list[int]
) -> None:
    """A rank whose device stands still before one of those is the one that the others wait for.

    So it is with two optimizer steps for one commit: the second waits for the look at the flag of
    the first, when the backward pass between them is queued.
    """
    group, net = made(gpu), torch.nn.Linear(2, 2)
    group.form()
    group.arrival.watch([torch.optim.SGD(net.parameters())])
    mark = Mark(7)
    begun[0], gpu.compute.is_done = 9, False
    net(torch.ones(1, 2)).sum().backward()
    group.synchronize(lambda: True, mark)
    assert group.arrived() == 7
    gpu.compute.is_done = True
    group.synchronize(lambda: True)
    gpu.compute.is_done, begun[0] = False, 11
    net(torch.ones(1, 2)).sum().backward()
    group.synchronize(lambda: True, mark)
    assert group.arrived() == 9, "a wait for an old mark takes nothing back"
    group.close()


def test_wait_that_the_end_of_the_world_cuts_short_settles_nothing(
    gpu: FakeGpu, begun: list[int]
) -> None:
    """The device has not come so far."""
    group, net = made(gpu), torch.nn.Linear(2, 2)
    group.form()
    group.arrival.watch([torch.optim.SGD(net.parameters())])
    group.synchronize(lambda: True)
    begun[0], gpu.compute.is_done = 9, False
    net(torch.ones(1, 2)).sum().backward()
    for mark in (None, Mark(9, is_done=False)):
        group.synchronize(lambda: False, mark)
        assert group.arrived() == 7
    group.close()

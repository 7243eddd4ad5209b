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
    assert reading.query() and not reading.was_up()
    flag.hoist()
    assert flag.read().was_up() and not reading.was_up(), "each look has numbers of its own"


def test_number_is_one_that_torch_subtracts_from_the_counts_of_steps() -> None:
    """They have no dimension, and one with a dimension would not fit."""
    flag = AbortFlag(CPU)
    assert flag.read().found_inf.shape == () and flag.read().found_inf.dtype is torch.float32
    assert not flag.read().was_up() and flag.read().query()
    before = flag.read()
    flag.hoist()
    assert flag.read().was_up() and not before.was_up()


def made(gpu: FakeGpu, flag: AbortFlag | None = None) -> Group:
    on_abort = flag.hoist if flag is not None else None
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
    mark = cuda.mark(gpu.own)
    del gpu.calls[:]
    group.settle(lambda: True, mark)
    assert gpu.calls == [], "it makes no mark of its own"
    group.abort()
    with pytest.raises(GroupBroken):
        group.settle(lambda: True, mark)
    group.close()


def test_look_at_the_peers_settles_nothing(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device has come to no more collectives by it."""
    settled: list[int] = []
    group = made(gpu)
    group.form()
    monkeypatch.setattr(group.arrival, "settled", settled.append)
    group.settle(lambda: True, cuda.NOTHING)
    assert settled == []
    group.settle(lambda: True)
    assert settled == [0]
    group.close()

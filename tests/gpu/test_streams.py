"""Before a step and in a snapshot the device's streams are waited for, and no more than that."""

import threading
import time
from typing import Any

import pytest
import torch

from elasticd.keeper.memory.memfd import SharedMemory
from elasticd.tensors import cuda
from elasticd.train.device.pinned_memory import Pinned
from elasticd.train.process_group.device_progress import DeviceProgress
from elasticd.train.process_group.group import Group
from elasticd.train.save.overlapped_copy import OverlappedCopy, copy_now
from elasticd.train.scalars.commit_scalars import CommitScalars
from tests.fixtures.ranks import entered
from tests.gpu.card import CARD, PATIENCE_S, note, spin

SPIN_S = 0.3
STATE_BYTES = 1 << 30


def group() -> Group:
    return Group(entered(0, 1, 0), device=CARD, backend="gloo", timeout_s=PATIENCE_S)


@pytest.mark.parametrize("is_aside", [False, True])
def test_synchronize_waits_for_the_stream_of_the_script(is_aside: bool) -> None:
    """Also where that is a stream of its own."""
    stream: Any = torch.cuda.Stream(CARD) if is_aside else torch.cuda.current_stream(CARD)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        spin(0.0)
        began_s = time.monotonic()
        spin(SPIN_S)
        group().synchronize(lambda: True)
    assert time.monotonic() - began_s > SPIN_S / 2
    torch.cuda.synchronize(CARD)


def test_synchronize_does_not_wait_for_another_stream() -> None:
    """A prefetcher's copies are nobody's gradients."""
    aside: Any = torch.cuda.Stream(CARD)  # type: ignore[no-untyped-call]
    spin(0.0)
    with torch.cuda.stream(aside):
        spin(SPIN_S)
    began_s = time.monotonic()
    group().synchronize(lambda: True)
    assert time.monotonic() - began_s < SPIN_S / 2
    torch.cuda.synchronize(CARD)


def test_number_on_the_gpu_is_known_later_and_not_waited_for() -> None:
    """As `commit(loss=loss)` gives it."""
    for seconds in (0.0, SPIN_S):  # The first time kernels are loaded, which may wait.
        torch.cuda.synchronize(CARD)
        scalars = CommitScalars()
        spin(seconds)
        scalars.set({"loss": torch.full((), 0.5, device=CARD)}, 1, None)
    assert scalars.known() == {}
    torch.cuda.synchronize(CARD)
    assert scalars.known() == {"loss": 0.5}


def test_device_that_lags_behind_its_cpu_says_so() -> None:
    """Its collectives are begun, and it has not come to them."""
    net = torch.nn.Linear(8, 8).to(CARD)
    arrival = DeviceProgress(CARD)
    arrival.watch([torch.optim.SGD(net.parameters())])
    arrival.completed(3)
    batch = torch.ones(1, 8, device=CARD)
    for seconds in (0.0, SPIN_S):  # The first time kernels are loaded, which may wait.
        torch.cuda.synchronize(CARD)
        net.zero_grad()
        spin(seconds)
        net(batch).sum().backward()
    assert arrival.count(5) == 3
    torch.cuda.synchronize(CARD)
    assert arrival.count(5) == 5
    arrival.close()


def test_graph_is_captured_beside_threads_that_ask_for_events() -> None:
    """As the heartbeat does, and as a thread registers memory while the first steps run.

    `torch.cuda.graph` forbids it to all threads, but for those that say that it does not concern
    them.
    """
    event, factor = cuda.mark(CARD), torch.ones(1 << 10, device=CARD)
    is_over, asked, registered = threading.Event(), [0], [0]

    def ask() -> None:
        while not is_over.is_set():
            assert cuda.is_done(event, CARD)
            asked[0] += 1
            registered[0] += shared(1 << 20)[2].is_pinned
            time.sleep(0.001)

    graph: Any = torch.cuda.CUDAGraph()
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        with torch.cuda.graph(graph):
            before = asked[0], registered[0]
            factor.mul_(2.0)
            time.sleep(SPIN_S)
            factor.add_(1.0)
            within = asked[0] - before[0], registered[0] - before[1]
    finally:
        is_over.set()
        thread.join()
    graph.replay()
    torch.cuda.synchronize(CARD)
    assert float(factor[0]) == 3.0 and min(within) > 0, within


def test_backward_pass_is_captured_and_leaves_no_event() -> None:
    """To ask for an event of a capture makes that fail."""
    net = torch.nn.Linear(8, 8).to(CARD)
    arrival = DeviceProgress(CARD)
    arrival.watch([torch.optim.SGD(net.parameters())])
    batch = torch.ones(1, 8, device=CARD)
    aside: Any = torch.cuda.Stream(CARD)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(aside):
        net(batch).sum().backward()  # Torch asks for a pass on another stream before a capture.
    torch.cuda.synchronize(CARD)
    arrival._event = None
    net.zero_grad()
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net(batch).sum().backward()
        assert arrival.count(5) == 5
    graph.replay()
    torch.cuda.synchronize(CARD)
    assert net.weight.grad is not None and float(net.weight.grad[0, 0]) == 1.0
    arrival.close()


def shared(size: int) -> tuple[SharedMemory, torch.Tensor, Pinned]:
    memory = SharedMemory.new(size)
    memory.populate()
    place = torch.frombuffer(memory.view, dtype=torch.float32)
    return memory, place, Pinned(memory.view, CARD)


@pytest.mark.parametrize("is_aside", [False, True])
def test_snapshot_is_that_of_the_kernels_before_the_commit(is_aside: bool) -> None:
    """And the next optimizer's step, which the CPU queues at once, is not in it."""
    _, place, pinned = shared(4 << 20)
    assert pinned.is_pinned
    stream: Any = torch.cuda.Stream(CARD) if is_aside else torch.cuda.current_stream(CARD)  # type: ignore[no-untyped-call]
    said: list[bool] = []
    with torch.cuda.stream(stream):
        weight = torch.nn.Parameter(torch.zeros(1 << 20, device=CARD))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        weight.grad = torch.zeros_like(weight)
        optimizer.step()  # Its kernels are loaded, which may wait.
        weight.grad = torch.full_like(weight, -1.0)
        spin(SPIN_S)
        optimizer.step()  # To 1, behind the kernel that spins.
        began_s = time.monotonic()
        overlap = OverlappedCopy([(weight.detach(), place)], said.append, is_pinned=True)
        optimizer.step()  # To 2.
        assert time.monotonic() - began_s < SPIN_S / 2, "the CPU waits for nothing"
    overlap.finish()
    torch.cuda.synchronize(CARD)
    assert said == [True] and float(place.min()) == float(place.max()) == 1.0
    assert float(weight[0]) == 2.0


def test_snapshot_beside_the_step_costs_it_little() -> None:
    """A GiB, beside kernels that compute; only figures, no limit."""
    memory, place, pinned = shared(STATE_BYTES)
    source = torch.ones(STATE_BYTES // 4, device=CARD)
    note("host memory registered", float(pinned.is_pinned), "of 1")
    factor = torch.randn(4096, 4096, device=CARD)

    def step(overlap: bool) -> float:
        torch.cuda.synchronize(CARD)
        began_s = time.monotonic()
        if overlap:
            copy = OverlappedCopy(
                [(source, place)], lambda is_good: None, is_pinned=pinned.is_pinned
            )
        for _ in range(50):
            factor @ factor
        torch.cuda.current_stream(CARD).synchronize()
        taken_s = time.monotonic() - began_s
        if overlap:
            copy.finish()
        return taken_s

    step(True)
    alone_s, beside_s = (min(step(flag) for _ in range(3)) for flag in (False, True))
    note("step of 50 products", alone_s * 1000, "ms")
    note("the same beside a snapshot of 1 GiB", beside_s * 1000, "ms")
    began_s = time.monotonic()
    copy_now([(source, place)])
    torch.cuda.synchronize(CARD)
    note("1 GiB copied at once", (time.monotonic() - began_s) * 1000, "ms")
    assert memory.size == STATE_BYTES and threading.active_count() >= 1

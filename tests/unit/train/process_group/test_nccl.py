"""A group of NCCL is made at once, under the deadline, and left by an abort alone."""

import threading
import time
from collections.abc import Iterator, MutableMapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import HashStore, distributed_c10d  # type: ignore[attr-defined]

from elasticd.errors import EnvironmentProblem
from elasticd.train.group_broken import GroupBroken
from elasticd.train.introspection import stuck_rank
from elasticd.train.process_group import default_group, nccl
from elasticd.train.process_group import group as group_module
from elasticd.train.process_group.group import Group
from elasticd.train.process_group.nccl import NcclAbort
from elasticd.train.tcp_store.start_barrier import Arrivals, gather, minority_ranks
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import entered
from tests.unit.train.device.gpu_case import FakeGpu

LIMIT_S = patience_s(20.0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """Whatever a test leaves, torch knows no group afterwards."""
    yield FakeGpu(monkeypatch)
    distributed_c10d._update_default_pg(None)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the process would have ended for."""
    why: list[str] = []
    monkeypatch.setattr(stuck_rank, "end_process", why.append)
    return why


def made(
    gpu: FakeGpu, timeout_s: float = LIMIT_S, env: MutableMapping[str, str] | None = None
) -> Group:
    return Group(entered(0, 1, 0), device=gpu.own, timeout_s=timeout_s, env=env)


def test_nccl_is_made_while_the_group_is_formed(gpu: FakeGpu) -> None:
    """Bound to the worker's device, with a collective that is waited for on that device."""
    env: dict[str, str] = {}
    group = made(gpu, env=env)
    group.form()
    (first, backend, options), *others = gpu.calls
    assert (first, backend) == ("init", "cpu:gloo,cuda:nccl")
    assert options.pop("store") is group.store
    assert options == {
        "rank": 0,
        "world_size": 1,
        "timeout": timedelta(seconds=default_group.COLLECTIVE_TIMEOUT_S),
        "device_id": torch.device("cuda", 1),
    }
    assert others == [("all_reduce", gpu.own), ("record", "compute 1")]
    assert env["TORCH_NCCL_NONBLOCKING_TIMEOUT"] == "11", "no longer than it may take"
    group.close()


def test_planned_end_is_an_abort_and_no_flush(gpu: FakeGpu) -> None:
    """All groups at once, in a thread of its own, and torch's own way is not gone after it."""
    group = made(gpu)
    group.form()
    del gpu.calls[:], gpu.threads[:]
    group.close()
    assert gpu.calls == [("abort", True)], "the default group is named: 2.6 wants it so"
    assert gpu.threads == ["elasticd-abort"] and gpu.entered == [gpu.own]


def test_planned_end_waits_for_the_others_first(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is still in the last collective may read what an abort takes away."""
    group = made(gpu)
    group.form()
    met: list[list[str]] = []

    def meet(store: Any, **options: Any) -> Arrivals:
        met.append(gpu.names())
        return gather(store, **options)

    monkeypatch.setattr(group_module, "gather", meet)
    group.close()
    assert len(met) == 1 and "abort" not in met[0]


def test_abort_from_another_thread_is_made_once(gpu: FakeGpu) -> None:
    """Whoever closes the group waits for it; nobody meets who may be dead."""
    group = made(gpu)
    group.form()
    may_end = threading.Event()
    gpu.before_abort = lambda: may_end.wait(LIMIT_S)
    thread = threading.Thread(target=group.abort)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive(), "abort returns at once"
    group.abort()
    closing = threading.Thread(target=group.close)
    closing.start()
    assert closing.is_alive()
    may_end.set()
    closing.join(LIMIT_S)
    assert not closing.is_alive() and gpu.names().count("abort") == 1
    assert "destroy" not in gpu.names()


def test_synchronize_waits_on_the_workers_own_device(gpu: FakeGpu) -> None:
    """For what its current stream was given: another device's would be empty."""
    group = made(gpu)
    group.form()
    del gpu.calls[:]
    gpu.compute.is_done = False
    done = threading.Event()

    def synchronize() -> None:
        group.synchronize(lambda: True)
        done.set()

    thread = threading.Thread(target=synchronize)
    thread.start()
    assert not done.wait(0.05), "its kernels still run"
    gpu.compute.is_done = True
    assert done.wait(LIMIT_S) and gpu.calls == [("record", "compute 1")]
    group.close()


def test_device_that_stands_still_has_come_to_what_was_settled_last(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CPU has begun as many collectives as all others, and waits as they do."""
    begun = [7]
    monkeypatch.setattr(Group, "sequence", lambda group: begun[0])
    monkeypatch.setattr(torch.nn.Parameter, "is_cuda", True, raising=False)
    group, net = made(gpu), torch.nn.Linear(2, 2)
    group.form()
    group.arrival.watch([torch.optim.SGD(net.parameters())])
    group.synchronize(lambda: True)
    begun[0], gpu.compute.is_done = 9, False
    net(torch.ones(1, 2)).sum().backward()
    assert group.arrived() == 7
    gpu.compute.is_done = True
    assert group.arrived() == 9
    group.close()


def test_synchronize_of_an_aborted_group_gives_no_step(gpu: FakeGpu) -> None:
    """The sums may lack a rank, whether the kernels ended or not."""
    group = made(gpu)
    group.form()
    gpu.compute.is_done = False
    threading.Timer(0.02, group.abort).start()
    with pytest.raises(GroupBroken):
        group.synchronize(lambda: True)
    group.close()


def test_group_that_does_not_connect_in_time_is_aborted(gpu: FakeGpu, ended: list[str]) -> None:
    """The process is used again."""
    gpu.compute.is_done = False
    group = made(gpu, timeout_s=0.05)
    with pytest.raises(GroupBroken, match="not formed in time"):
        group.form()
    assert gpu.names().count("abort") == 1 and not ended
    assert not distributed_c10d.is_initialized()


@pytest.mark.parametrize(("given", "limit_s"), [("90", 90.0), ("5", 10.1), ("x", 10.1)])
def test_nccl_may_take_as_long_to_begin_as_the_operator_gives_torch(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, given: str, limit_s: float
) -> None:
    """Else nothing helps where the first communicator takes longer: each forming ends too soon."""
    gathered = SimpleNamespace(check=lambda *args, **options: None)
    monkeypatch.setattr(group_module, "gather", lambda *args, **options: gathered)
    env = {"TORCH_NCCL_NONBLOCKING_TIMEOUT": given}
    group = Group(entered(0, 2, 0), device=gpu.own, timeout_s=LIMIT_S, env=env)
    group._deadline_s = time.monotonic() + 1000.0
    group._gather(group._deadline_s)
    left_s = group._left_s()
    assert left_s is not None and limit_s - 5.0 < left_s <= limit_s
    assert env["TORCH_NCCL_NONBLOCKING_TIMEOUT"] == given


def test_aborted_while_it_is_made(gpu: FakeGpu) -> None:
    """What there was to abort came only later; it goes all the same."""
    group = made(gpu)
    gpu.after_init = group.abort
    gpu.compute.is_done = False
    with pytest.raises(GroupBroken, match="was aborted"):
        group.form()
    assert gpu.names()[-1] == "abort" and not distributed_c10d.is_initialized()


def test_call_that_makes_communicators_for_ever_ends_the_process(
    gpu: FakeGpu, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No abort reaches it, and the others wait for this slot's next process."""
    monkeypatch.setattr(nccl, "ABORT_LIMIT_S", 0.1)
    group = made(gpu)

    def hang() -> None:
        distributed_c10d._update_default_pg(None)  # As long as torch makes it, there is none.
        group.abort()
        until_s = time.monotonic() + LIMIT_S
        while not ended and time.monotonic() < until_s:
            time.sleep(0.001)

    gpu.after_init = hang
    with pytest.raises((GroupBroken, AttributeError)):
        group.form()
    assert ended and "not formed in time" in ended[0]


def test_abort_that_does_not_return_ends_the_process(gpu: FakeGpu, ended: list[str]) -> None:
    """No exception: it would go through an interpreter with a thread inside NCCL."""
    group = made(gpu)
    group.form()
    may_end = threading.Event()
    gpu.before_abort = lambda: may_end.wait(LIMIT_S)
    abort = NcclAbort(gpu.own, limit_s=0.05)
    abort.begin()
    abort.wait()
    assert ended == ["the abort of NCCL did not return within 0.05 s"]
    may_end.set()
    group.close()


@pytest.mark.parametrize(
    ("env", "limit_s"),
    [
        ({"TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}, 11 + 5),
        ({"TORCH_NCCL_USE_COMM_NONBLOCKING": "1", "TORCH_NCCL_NONBLOCKING_TIMEOUT": "30"}, 30 + 5),
        ({"TORCH_NCCL_USE_COMM_NONBLOCKING": "1", "TORCH_NCCL_NONBLOCKING_TIMEOUT": "1"}, 10),
        ({"TORCH_NCCL_USE_COMM_NONBLOCKING": "1", "TORCH_NCCL_NONBLOCKING_TIMEOUT": "x"}, 10),
        ({"TORCH_NCCL_USE_COMM_NONBLOCKING": "0", "TORCH_NCCL_NONBLOCKING_TIMEOUT": "30"}, 10),
    ],
)
def test_abort_may_take_longer_than_torch_takes_to_give_up_a_communicator(
    gpu: FakeGpu,
    ended: list[str],
    monkeypatch: pytest.MonkeyPatch,
    env: dict[str, str],
    limit_s: float,
) -> None:
    """Else the survivor's process ends, though the abort would have returned a moment later."""
    limits: list[float] = []

    class Recorded(NcclAbort):
        def __init__(self, device: torch.device, limit_s: float) -> None:
            limits.append(limit_s)
            super().__init__(device, limit_s)

    monkeypatch.setattr(nccl, "NcclAbort", Recorded)
    group = made(gpu, env=env)
    group.form()
    group.close()
    assert limits == [limit_s] and ended == []


def test_abort_that_fails_ends_the_process_and_is_told(gpu: FakeGpu, ended: list[str]) -> None:
    """Kernels that nobody aborted spin on."""
    group = made(gpu)
    group.form()

    def fail() -> None:
        gpu.before_abort = lambda: None
        raise RuntimeError("unhandled cuda error")

    gpu.before_abort = fail
    group.close()
    assert ended == ["NCCL could not be aborted (RuntimeError: unhandled cuda error)"]


class OwnGroup:
    """One of two whose aborts wait for each other, as what is freed waits for all kernels."""

    def __init__(self, both: threading.Barrier, error: Exception | None = None) -> None:
        self._both, self._error = both, error
        self.is_aborted = False

    def abort(self) -> None:
        self._both.wait(LIMIT_S)
        self.is_aborted = True
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, RuntimeError("unhandled cuda error")])
def test_groups_of_a_script_are_aborted_at_the_same_time(
    gpu: FakeGpu, ended: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """One after the other the first waits for the second; what fails is told."""
    group = made(gpu)
    group.form()
    both = threading.Barrier(2)
    names = {OwnGroup(both): "0", OwnGroup(both, error): "1"}
    monkeypatch.setattr(distributed_c10d, "_pg_names", names)
    group.close()
    assert all(each.is_aborted for each in names)
    if error is None:
        assert not ended and gpu.names()[-1] == "abort", "torch forgets them then"
    else:
        assert ended == ["NCCL could not be aborted (RuntimeError: unhandled cuda error)"]


def test_environment_keeps_torch_from_ending_the_process() -> None:
    """What must be is set; what somebody may know better is left where it stands."""
    env = {"NCCL_NVLS_ENABLE": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    nccl.prepare(env)
    assert env == {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
        "TORCH_NCCL_USE_COMM_NONBLOCKING": "1",
        "NCCL_NVLS_ENABLE": "1",
    }


@pytest.mark.parametrize(("version", "wanted"), [("2.9.1+cu128", None), ("2.10.0", "1")])
def test_torch_that_asks_from_two_threads_keeps_communicators_that_block(
    monkeypatch: pytest.MonkeyPatch, version: str, wanted: str | None
) -> None:
    """Those that do not block would hang now and then; who sets the variable has them."""
    monkeypatch.setattr(torch, "__version__", version)
    env: dict[str, str] = {}
    nccl.prepare(env)
    assert env.get("TORCH_NCCL_USE_COMM_NONBLOCKING") == wanted and "NCCL_NVLS_ENABLE" in env
    env = {"TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}
    nccl.prepare(env)
    assert env["TORCH_NCCL_USE_COMM_NONBLOCKING"] == "1"


def test_gloo_alone_knows_nothing_of_it(gpu: FakeGpu) -> None:
    """A group of CPUs, or of ranks that share one card, is made as before."""
    Group(entered(0, 1, 0), timeout_s=LIMIT_S, device=gpu.own, backend="gloo").form()
    (_, backend, options), *others = gpu.calls
    assert backend == "gloo" and "device_id" not in options and not others


# --- who trains on what -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "odd"),
    [
        (["cuda", "cuda", "cpu", "cuda"], (2,)),
        (["cpu", "cpu", "cuda"], (2,)),
        (["cuda", "cpu"], (1,)),
        (["cpu", "cpu", "cuda", "cuda"], (0, 1)),
    ],
)
def test_odd_one_is_unlike_most_or_has_no_gpu(kinds: list[str], odd: tuple[int, ...]) -> None:
    """Every rank comes to the same answer from the same words."""
    store = HashStore()
    assert minority_ranks(kinds) == odd
    found = [Arrivals()] * len(kinds)

    def meet(rank: int) -> None:
        until_s = time.monotonic() + LIMIT_S
        found[rank] = gather(
            store, rank=rank, size=len(kinds), deadline_s=until_s, kind=kinds[rank]
        )

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(len(kinds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert found == [Arrivals(odd=odd)] * len(kinds)


def test_rank_without_its_gpu_ends_with_a_sentence_and_the_others_say_who() -> None:
    """Before any of them connects: their backends' keys differ, so they would wait for nothing."""
    gathered = Arrivals(odd=(2,))
    with pytest.raises(EnvironmentProblem, match=r"trains on a CPU.*nvidia-smi"):
        gathered.check(3, 2, "cpu", is_timed_out=True)
    with pytest.raises(GroupBroken, match=r"do not train on a GPU.*: 2\."):
        gathered.check(3, 0, "cuda", is_timed_out=True)
    Arrivals().check(3, 0, "cuda", is_timed_out=True)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_alike_ranks_meet(kind: str) -> None:
    """The last one to come sees all."""
    store = HashStore()
    store.set("here/0", kind)
    store.add("here", 1 if kind == "cpu" else 1 + (1 << 32))
    until_s = time.monotonic() + LIMIT_S
    assert gather(store, rank=1, size=2, deadline_s=until_s, kind=kind) == Arrivals()
    assert store.get("all-here") == b"alike"

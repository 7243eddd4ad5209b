"""Process groups that end at any moment, in processes that go on to the next."""

import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elasticd.train.process_group.group import Group, GroupBroken
from tests.fixtures.patience import patience_s
from tests.fixtures.ranks import Cast, entered

FORM_LIMIT_S = patience_s(20.0)
PATIENCE_S = patience_s(15.0)
"""Far above what a wake takes, far below what the thing that is woken would wait."""


def made(
    rank: int, size: int, port: int, generation: int = 1, limit_s: float = FORM_LIMIT_S
) -> Group:
    return Group(entered(rank, size, port, generation), backend="gloo", timeout_s=limit_s)


def formed(rank: int, size: int, port: int, generation: int = 1) -> Group:
    group = made(rank, size, port, generation)
    group.form()
    return group


def abort_soon(group: Group, after_s: float = 0.2) -> threading.Timer:
    timer = threading.Timer(after_s, group.abort)
    timer.start()
    return timer


def abort_when_told(line: Connection, group: Group) -> None:
    line.recv()
    group.abort()


def seconds_to_raise(call: Any) -> tuple[float, BaseException | None]:
    started_s = time.monotonic()
    try:
        call()
    except Exception as exc:
        took_s = time.monotonic() - started_s
        # Its frames hold the group; elasticd.run lets go of them in this way too.
        traceback.clear_frames(exc.__traceback__)
        exc.__traceback__ = exc.__cause__ = exc.__context__ = None
        return took_s, exc
    return time.monotonic() - started_s, None


def in_use() -> tuple[int, int]:
    """Open descriptors and threads."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def within(now: tuple[int, int], before: tuple[int, int]) -> bool:
    return all(map(int.__le__, now, before))


def in_use_after(before: tuple[int, int]) -> tuple[int, int]:
    """What is in use once threads that were joined have left the kernel too: join is earlier.

    What was in use before may itself have counted such a thread, so less is not waited for to grow.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while not within(now := in_use(), before) and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return now


# --- plays: what a rank's process does --------------------------------------------------------


def reduce_once(line: Connection, rank: int, size: int, port: int) -> None:
    hook = sys.excepthook
    group = formed(rank, size, port)
    assert sys.excepthook is hook
    before = group.sequence()
    tensor = torch.full((10,), float(rank + 1))
    dist.all_reduce(tensor)
    begun = group.sequence() - before
    group.synchronize(lambda: True)
    gone = group.is_peer_gone()
    group.store.set(f"done/{rank}", b"")
    group.store.wait([f"done/{each}" for each in range(size)])
    group.close()
    line.send((float(tensor[0]), begun, gone, dist.is_initialized()))


def begin_and_wait(line: Connection, rank: int, size: int, port: int, way: str) -> None:
    """Rank 1 begins the second collective when it is told to."""
    group = formed(rank, size, port)
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    before = group.is_in_collective()
    if rank:
        line.send(before)
        line.recv()
        dist.all_reduce(tensor)
    else:
        # As DistributedDataParallel begins it, or as a script does.
        world: Any = dist.group.WORLD
        if way == "passed":
            work = world.begin_allreduce([tensor])
            world.pass_on(work)
        else:
            work = dist.all_reduce(tensor, async_op=True)
        line.send((before, group.is_in_collective()))
        work.wait()
    line.send(group.is_in_collective())
    line.recv()
    group.close()
    line.send(group.is_in_collective())


def stop_itself(line: Connection, rank: int, size: int, port: int) -> None:
    formed(rank, size, port)
    os.kill(os.getpid(), signal.SIGSTOP)


def meet_a_death(line: Connection, rank: int, size: int, port: int) -> None:
    group = formed(rank, size, port)
    if rank:
        # A rank that is formed may be connected to one that still waits for its other connections.
        group.store.wait(["formed/0"])
        os.kill(os.getpid(), signal.SIGKILL)
    group.store.set("formed/0", b"")
    _, error = seconds_to_raise(lambda: dist.all_reduce(torch.ones(2_500_000)))
    line.send((type(error), group.is_peer_gone()))
    group.abort()
    line.send(group.is_peer_gone())
    group.close()


def wait_in_collective(line: Connection, rank: int, size: int, port: int, what: str) -> None:
    group = formed(rank, size, port)
    subgroup = dist.new_group(list(range(size))) if what == "subgroup" else None
    line.send("ready")
    line.recv()
    timer = abort_soon(group)
    tensor = torch.ones(2_500_000)
    if what == "store":
        took_s, error = seconds_to_raise(lambda: group.store.get("never"))
    else:
        took_s, error = seconds_to_raise(lambda: dist.all_reduce(tensor, group=subgroup))
    timer.join()
    line.send((took_s, repr(error)))
    took_s, _ = seconds_to_raise(group.close)
    again = formed(0, 1, 0, 2)
    dist.all_reduce(tensor)
    again.close()
    line.send(took_s)


def take_part_and_stop(line: Connection, rank: int, size: int, port: int, what: str) -> None:
    formed(rank, size, port)
    if what == "subgroup":
        dist.new_group(list(range(size)))
    line.send("ready")
    os.kill(os.getpid(), signal.SIGSTOP)


def form_and_abort(line: Connection, rank: int, size: int, port: int, abort_s: float) -> None:
    """A negative time: not before it is told."""
    before = in_use()
    group = made(rank, size, port)
    timer: threading.Thread | None = None
    if abort_s > 0:
        timer = abort_soon(group, abort_s)
    elif abort_s < 0:
        timer = threading.Thread(target=abort_when_told, args=(line, group))
        timer.start()
    else:
        group.abort()

    # A rank that connected to all others itself is formed before it finds them silent.
    def form_and_reduce() -> None:
        group.form()
        dist.all_reduce(torch.ones(1))

    took_s, error = seconds_to_raise(form_and_reduce)
    group.close()
    if timer is not None:
        timer.join()
    line.send((took_s, error, before, in_use_after(before)))


def form_too_late(line: Connection, rank: int, size: int, port: int) -> None:
    line.send("ready")
    line.recv()
    try:
        # The one must not be late for the other by as much.
        made(rank, size, port, limit_s=patience_s(5.0)).form()
    except GroupBroken as exc:
        line.send((exc.missing, str(exc)))


class _Slow(dist.Store):  # type: ignore[misc,name-defined]
    """A store with which a rank publishes its address and then never connects."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._real = store

    def set(self, key: str, value: bytes) -> None:
        self._real.set(key, value)

    def get(self, key: str) -> Any:
        return self._real.get(key)

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


def come_and_stop_before_connecting(line: Connection, rank: int, size: int, port: int) -> None:
    group = made(rank, size, port)
    begin: Any = dist.init_process_group

    def begin_slowly(backend: str, *, store: Any, **rest: Any) -> None:
        begin(backend, store=_Slow(store), **rest)

    vars(dist)["init_process_group"] = begin_slowly
    group.form()


def live_through(line: Connection, rank: int, port: int, rounds: int) -> None:
    """Form a group, train, be aborted in a backward, again and again in one process."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    early: tuple[int, int] | None = None
    for generation in range(1, rounds + 1):
        group = formed(rank, 2, port, generation)
        train_until_aborted(group, model, is_silent=rank == 1)
        group.close()
        if generation == 1 + rounds // 5:
            early = in_use()
    assert early is not None
    line.send((early, in_use_after(early)))


def train_until_aborted(group: Group, model: torch.nn.Module, *, is_silent: bool) -> None:
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.02)
    wrapped(torch.ones(2, 64)).sum().backward()
    if is_silent:
        # The end of this rank's connections must not meet the other in this backward, but the next.
        group.store.get("trained")
        group.store.set("silent", b"")  # The abort ends the store's connection as well.
        timer = abort_soon(group, 0.03)
        seconds_to_raise(lambda: group.store.get("never"))
        timer.join()
        return
    group.store.set("trained", b"")
    group.store.get("silent")
    timer = abort_soon(group, 0.01)
    took_s, error = seconds_to_raise(lambda: wrapped(torch.ones(2, 64)).sum().backward())
    timer.join()
    assert isinstance(error, RuntimeError) and took_s < PATIENCE_S


# --- tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3])
def test_a_formed_group_reduces_and_leaves_nothing(size: int) -> None:
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(reduce_once, rank, size, port) for rank in range(size)]
        total = size * (size + 1) / 2
        assert [each.hear() for each in ranks] == [(total, 1, False, False)] * size


def test_the_death_of_a_peer_is_told_from_an_error_of_ones_own() -> None:
    with Cast() as cast:
        _, port = cast.store()
        left = cast.start(meet_a_death, 0, 2, port)
        cast.start(meet_a_death, 1, 2, port)
        assert left.hear() == (RuntimeError, True)
        assert left.hear() is True  # Also when it is asked after our own abort.


@pytest.mark.parametrize("what", ["default", "subgroup", "store"])
def test_abort_wakes_a_call_whose_peer_is_silent(what: str) -> None:
    with Cast() as cast:
        _, port = cast.store()
        awake = cast.start(wait_in_collective, 0, 2, port, what)
        silent = cast.start(take_part_and_stop, 1, 2, port, what)
        assert [awake.hear(), silent.hear()] == ["ready", "ready"]
        silent.wait_stopped()
        awake.tell("go")
        took_s, error = awake.hear()
        assert took_s < PATIENCE_S and error != "None"
        assert awake.hear() < PATIENCE_S  # And the process can go on, in another group.


@pytest.mark.parametrize("abort_s", [0.0, 0.3])
def test_abort_ends_a_forming_that_waits_for_a_rank(abort_s: float) -> None:
    with Cast() as cast:
        _, port = cast.store()
        took_s, error, before, after = cast.start(form_and_abort, 0, 2, port, abort_s).hear()
        assert took_s < FORM_LIMIT_S / 2
        assert isinstance(error, GroupBroken) and "aborted" in str(error)
        assert within(after, before), (after, before)


@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL])
def test_abort_ends_a_forming_whose_store_is_silent(fault: int) -> None:
    with Cast() as cast:
        host, port = cast.store()
        host.send_signal(fault)
        took_s, error, _, _ = cast.start(form_and_abort, 0, 2, port, 0.3).hear()
        assert took_s < FORM_LIMIT_S / 2 and isinstance(error, GroupBroken)


def test_abort_ends_a_forming_whose_peer_stopped_before_it_connected() -> None:
    with Cast() as cast:
        _, port = cast.store()
        play = come_and_stop_before_connecting
        silent = [cast.start(play, rank, 4, port) for rank in (1, 2, 3)]
        waiting = cast.start(form_and_abort, 0, 4, port, -1.0)
        for each in silent:
            each.wait_stopped()
        time.sleep(0.2)  # So that it waits for them.
        told_s = time.monotonic()
        waiting.tell("abort")
        _, error, before, after = waiting.hear()
        took_s = time.monotonic() - told_s
        assert took_s < FORM_LIMIT_S / 2 and isinstance(error, GroupBroken | RuntimeError)
        assert within(after, before), (after, before)


def test_ranks_that_did_not_come_are_named() -> None:
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(form_too_late, rank, 5, port) for rank in (0, 3)]
        # So that neither has to wait for the start of the other's process as well.
        assert [each.hear() for each in ranks] == ["ready", "ready"]
        for each in ranks:
            each.tell("go")
        for missing, why in (each.hear() for each in ranks):
            assert missing == (1, 2, 4)
            assert "did not come: 1, 2, 4" in why


@pytest.mark.parametrize("way", ["passed", "watched"])
def test_rank_that_waits_in_a_collective_says_so(way: str) -> None:
    """The others have not begun it, or nothing gets through: it is not for this rank that they
    wait."""
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(begin_and_wait, rank, 2, port, way) for rank in (0, 1)]
        assert ranks[0].hear() == (False, True)
        assert ranks[1].hear() is False
        ranks[1].tell("go")
        for _ in range(2):
            assert [each.hear() for each in ranks] == [False, False]
            for each in ranks:
                each.tell("go")


def test_one_process_lives_through_many_aborted_groups() -> None:
    rounds = int(os.environ.get("ELASTICD_TEST_ROUNDS", "50"))
    with Cast() as cast:
        _, port = cast.store()
        ranks = [cast.start(live_through, rank, port, rounds) for rank in (0, 1)]
        for early, late in (each.hear(10 * PATIENCE_S) for each in ranks):
            assert within(late, early), (late, early)

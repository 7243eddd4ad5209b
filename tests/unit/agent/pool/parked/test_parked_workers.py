"""When a worker is parked and when it is ended; an order is carried out once or not at all."""

import errno
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.channel.pool import FromPool, NotParked, PoolParked, Start
from elasticd.channel.wire import pack
from elasticd.records.job import EntryKind
from elasticd_agent.pool.launch import Launcher, fork
from elasticd_agent.pool.parked import order, parked_process, parked_workers
from elasticd_agent.pool.parked.parked_workers import (
    BACKOFF_S,
    FORGET_S,
    LOSSES_LIMIT,
    ROOM_TICK_S,
    SHORTAGE_S,
    SURPLUS_S,
    ParkedWorkers,
)
from elasticd_agent.pool.process.inheritance import open_fds
from tests.fixtures.pool import is_alive, wait_until

START = Start(
    worker="w",
    entry_kind=EntryKind.SCRIPT,
    entry="s.py",
    args=(),
    cwd="/",
    env={},
    out_path="/dev/null",
    err_path="/dev/null",
    error_file="",
)


class Bench:
    """Parked workers of this process, and a clock that is told."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said: list[FromPool] = []
        self.shortage = ""
        launcher = Launcher(can_fork=True, can_park=True, pool_pid=os.getpid(), kept_fds=())
        self.parked = ParkedWorkers(launcher, self.said.append, lambda: self.shortage)

    def reconcile(self, wanted: int | None = 1, source: int = 0) -> set[int]:
        self.parked.reconcile(self.now_s, wanted, source)
        return self.parked.pids

    def park(self, count: int = 1) -> set[int]:
        """Have some parked; returns their numbers once they wait."""

        def is_told() -> bool:
            self.reconcile(count)
            return bool(self.said)

        wait_until(is_told, because="none is parked")
        (told,) = self.said
        self.said.clear()
        assert isinstance(told, PoolParked) and told.workers == len(self.parked.pids)
        return self.parked.pids

    def reap(self) -> None:
        for pid in self.parked.pids:
            os.waitpid(pid, 0)
            self.parked.on_exit(pid, self.now_s)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.parked.end()
    made.reap()


def test_none_is_forked_before_the_last_launch_has_settled(bench: Bench) -> None:
    """Nor when no worker runs."""
    bench.parked.back_off(bench.now_s)
    bench.now_s += BACKOFF_S / 2
    assert not bench.reconcile()
    bench.now_s += BACKOFF_S
    assert not bench.reconcile(wanted=0)
    assert not bench.reconcile(wanted=None), "another zygote is being made"
    pids = bench.park()
    assert bench.reconcile() == pids, "there are more than workers"


def test_those_of_an_older_zygote_are_ended(bench: Bench) -> None:
    """The next workers come from another process, which has loaded more."""
    (pid,) = bench.park()
    assert bench.parked.launch(START, 7, bench.now_s) is None
    bench.reconcile(wanted=None, source=7)
    wait_until(lambda: not is_alive(pid), because="it is of an older zygote")


@pytest.mark.parametrize("is_seen", [True, False])
def test_one_that_stands_still_is_ended_and_runs_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """Whether that is seen before it gets the order, or by its answer that does not come."""
    (pid,) = bench.park()
    stop(pid)
    if not is_seen:
        monkeypatch.setattr(parked_workers, "is_waiting", lambda _: True)
    assert bench.parked.launch(START, 0, bench.now_s) is None
    assert bench.parked.pids == {pid}, "nobody knows of it until it is reaped"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    bench.parked.on_exit(pid, bench.now_s)
    assert not bench.reconcile(), "the next one is forked at once"


def test_one_that_has_answered_runs_nothing_before_it_is_told_to() -> None:
    """The pool may have given it up meanwhile, and have forked another."""
    ours, theirs = socket.socketpair()
    read_fd, write_fd = os.pipe()
    pool_pid, control_fd = os.getpid(), theirs.detach()
    pid = fork()
    if pid == 0:
        parked_process.wait_for_order(control_fd, open_fds(), pool_pid)
        os.write(write_fd, b"it runs")
        os._exit(0)
    os.close(control_fd)
    os.close(write_fd)
    assert int(ours.makefile().readline()) == pid
    order_fd = os.memfd_create("order")
    os.write(order_fd, pack(START))
    socket.send_fds(ours, [order.ORDER], [order_fd, order_fd])
    os.close(order_fd)
    assert ours.recv(1) == order.TAKEN
    ours.shutdown(socket.SHUT_RDWR)
    ours.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert os.read(read_fd, 10) == b""
    os.close(read_fd)


def test_first_one_that_is_silent_is_the_last_that_is_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stopped it may have stopped all of them, and each would cost its time at one order."""
    pids = bench.park(4)
    for pid in pids:
        stop(pid)
    asked: list[int] = []

    def ask(control_fd: int, start: Start) -> int:
        asked.append(control_fd)
        return order.hand_over(control_fd, start)

    monkeypatch.setattr(parked_workers, "is_waiting", lambda _: True)
    monkeypatch.setattr(parked_workers, "hand_over", ask)
    assert bench.parked.launch(START, 0, bench.now_s) is None
    assert len(asked) == 1
    for pid in pids:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        bench.parked.on_exit(pid, bench.now_s)
    assert not bench.parked.pids


def test_order_that_fails_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where there is no memory for the order, nor where nobody answers."""
    ours, theirs = socket.socketpair()
    theirs.close()
    before = open_fds()
    with pytest.raises(BrokenPipeError):
        order.hand_over(ours.fileno(), START)
    assert open_fds() == before

    def refuse(_: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        order.hand_over(ours.fileno(), START)
    assert open_fds() == before
    ours.close()


def test_none_is_parked_of_a_source_whose_forks_take_too_much(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is told of it once."""
    monkeypatch.setattr(parked_workers, "PRIVATE_LIMIT_BYTES", 1)
    (pid,) = bench.reconcile()
    wait_until(lambda: bench.reconcile() == {pid} and not is_alive(pid), because="it is too large")
    bench.reap()
    bench.now_s += 10 * BACKOFF_S
    assert not bench.reconcile()
    (told,) = bench.said
    assert isinstance(told, NotParked) and "MiB" in told.why


def test_after_twelve_losses_in_a_row_none_is_parked(bench: Bench) -> None:
    """The agent is told the reason, once."""
    for _ in range(LOSSES_LIMIT):
        assert not bench.said
        (pid,) = bench.reconcile()
        os.kill(pid, signal.SIGKILL)
        bench.reap()
        bench.now_s += 2 * BACKOFF_S
    for _ in range(3):
        assert not bench.reconcile()
        bench.now_s += 2 * BACKOFF_S
    (told,) = bench.said
    assert isinstance(told, NotParked) and "it ended" in told.why
    bench.said.clear()
    bench.now_s += FORGET_S
    bench.park()


def test_those_that_are_lost_at_once_are_one_loss(bench: Bench) -> None:
    """All processes of a node of twelve may be killed by one event, and then parking goes on."""
    for pid in bench.park(LOSSES_LIMIT):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        bench.parked.on_exit(pid, bench.now_s)
        bench.now_s += 0.01
    bench.now_s += 2 * BACKOFF_S
    bench.park()


def test_one_that_differs_from_its_source_is_no_loss(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has changed a limit of the pool: the next one has it."""
    monkeypatch.setattr(parked_workers, "has_same_inheritance", lambda *_: False)
    for _ in range(LOSSES_LIMIT + 1):
        (pid,) = bench.park()
        assert bench.parked.launch(START, 0, bench.now_s) is None
        os.waitpid(pid, 0)
        bench.parked.on_exit(pid, bench.now_s)


def test_those_that_are_too_many_are_ended_when_the_node_is_quiet(bench: Bench) -> None:
    """A job has shrunk, or has ended; but a recovery that has no worker yet needs them."""
    pids = bench.park(3)
    bench.parked.back_off(bench.now_s)
    assert bench.reconcile(wanted=0) == pids
    bench.now_s += SURPLUS_S
    assert bench.reconcile(wanted=None) == pids
    bench.reconcile(wanted=1)
    wait_until(lambda: sum(map(is_alive, pids)) == 1, because="two are too many")
    bench.reconcile(wanted=0)
    wait_until(lambda: not any(map(is_alive, pids)), because="there is no worker")


def test_a_pool_parks_so_many_at_most(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of very many small workers is not doubled."""
    monkeypatch.setattr(parked_workers, "PARKED_LIMIT", 2)
    pids = bench.park(9)
    assert len(pids) == 2 and bench.reconcile(9) == pids


def test_where_memory_is_short_none_is_parked_until_there_is_more(bench: Bench) -> None:
    """Those that wait are ended; the agent is told once."""
    (pid,) = bench.park()
    bench.shortage = "there is none"
    bench.now_s += 2 * ROOM_TICK_S
    bench.reconcile()
    wait_until(lambda: not is_alive(pid), because="it takes memory that workers need")
    bench.reap()
    bench.now_s += 2 * ROOM_TICK_S
    assert not bench.reconcile()
    assert bench.said == [NotParked(why="there is none")]
    bench.said.clear()
    bench.shortage = ""
    bench.now_s += SHORTAGE_S / 2
    assert not bench.reconcile(), "what they took may be all that was missing"
    bench.now_s += SHORTAGE_S
    bench.park()


def test_what_one_takes_is_told(bench: Bench) -> None:
    """It is far from the limit; it has one thread and a name that `ps` shows."""
    (pid,) = bench.reconcile()
    wait_until(lambda: bool(bench.reconcile() and bench.said), because="none is parked")
    (told,) = bench.said
    assert isinstance(told, PoolParked)
    assert told.workers == 1 and told.private_bytes > 0
    assert Path(f"/proc/{pid}/comm").read_text() == "parked\n"
    assert os.listdir(f"/proc/{pid}/task") == [str(pid)]

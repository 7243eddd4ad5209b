"""When a worker is parked and when it is ended; an order is carried out once or not at all."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.channel.pool import FromPool, PoolParked, Start
from elasticd.channel.wire import pack
from elasticd.records.job import EntryKind
from elasticd_agent.pool.launch import Launcher, fork
from elasticd_agent.pool.parked import order, parked_keeper, parked_process
from elasticd_agent.pool.parked.parked_keeper import LOSSES_LIMIT, SETTLE_S, ParkedKeeper
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
    """A keeper in this process, and a clock that is told."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said: list[FromPool] = []
        launcher = Launcher(can_fork=True, can_park=True, pool_pid=os.getpid(), kept_fds=())
        self.keeper = ParkedKeeper(launcher, self.said.append)

    def tend(self, wanted: int = 1, source: int = 0) -> set[int]:
        self.keeper.tend(self.now_s, wanted, source)
        return self.keeper.pids

    def park(self) -> int:
        """Have one parked; returns its number once it waits."""

        def is_told() -> bool:
            self.tend()
            return bool(self.said)

        wait_until(is_told, because="none is parked")
        self.said.clear()
        (pid,) = self.keeper.pids
        return pid

    def reap(self) -> None:
        for pid in self.keeper.pids:
            os.waitpid(pid, 0)
            self.keeper.bury(pid, self.now_s)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.keeper.end()
    made.reap()


def test_none_is_forked_before_the_last_launch_has_settled(bench: Bench) -> None:
    """Nor when no worker runs."""
    bench.keeper.settle(bench.now_s)
    bench.now_s += SETTLE_S / 2
    assert not bench.tend()
    bench.now_s += SETTLE_S
    assert not bench.tend(wanted=0)
    pid = bench.park()
    assert bench.tend() == {pid}, "there are more than workers"


def test_those_of_an_older_zygote_are_ended(bench: Bench) -> None:
    """The next workers come from another process, which has loaded more."""
    pid = bench.park()
    assert bench.keeper.launch(START, 7, bench.now_s) is None
    bench.tend(wanted=0, source=7)
    wait_until(lambda: not is_alive(pid), because="it is of an older zygote")


@pytest.mark.parametrize("is_seen", [True, False])
def test_one_that_stands_still_is_ended_and_runs_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """Whether that is seen before it gets the order, or by its answer that does not come."""
    pid = bench.park()
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)
    if not is_seen:
        monkeypatch.setattr(parked_keeper, "is_as_a_fork", lambda *_: True)
    assert bench.keeper.launch(START, 0, bench.now_s) is None
    assert bench.keeper.pids == {pid}, "nobody knows of it until it is reaped"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    bench.keeper.bury(pid, bench.now_s)
    assert not bench.tend(), "the next one is forked at once"


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


def test_limits_hold(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes too much memory is the last of its source; so is the twelfth that is lost."""
    monkeypatch.setattr(parked_keeper, "PRIVATE_LIMIT_BYTES", 1)
    (pid,) = bench.tend()
    wait_until(lambda: bench.tend() == {pid} and not is_alive(pid), because="it is too large")
    bench.reap()
    bench.now_s += 10 * SETTLE_S
    assert not bench.tend()
    assert not bench.said
    monkeypatch.undo()
    again = Bench()
    for _ in range(LOSSES_LIMIT):
        (pid,) = again.tend()
        os.kill(pid, signal.SIGKILL)
        again.reap()
        again.now_s += 2 * SETTLE_S
    assert not again.tend()


def test_what_one_takes_is_told(bench: Bench) -> None:
    """It is far from the limit; it has one thread and a name that `ps` shows."""
    (pid,) = bench.tend()
    wait_until(lambda: bool(bench.tend() and bench.said), because="none is parked")
    (told,) = bench.said
    assert isinstance(told, PoolParked)
    assert told.workers == 1 and told.private_bytes > 0
    assert Path(f"/proc/{pid}/comm").read_text() == "parked\n"
    assert os.listdir(f"/proc/{pid}/task") == [str(pid)]

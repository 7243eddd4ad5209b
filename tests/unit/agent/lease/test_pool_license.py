"""A pool that does not enforce its license is killed by its agent, with all its processes."""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import pytest

from elasticd.channel.pool import License
from elasticd_agent.lease import pool_license
from elasticd_agent.lease.pool_license import PoolLicense
from elasticd_agent.loop.clock import now_s
from elasticd_agent.pool.process.process_table import children_of
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(20.0)
QUIET_S = 1.0
"""Several times as long as both looks take here."""


class Pool:
    """A pool with one worker: a process that has a child, and reads nothing."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["sh", "-c", "sleep 600 & wait"])
        self.told: list[License] = []

    def send(self, message: License) -> None:
        self.told.append(message)


class Node:
    """The agent's main thread: what is posted is carried out by the test."""

    def __init__(self) -> None:
        self.pool, self.workers = Pool(), {"w"}
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.license = PoolLicense(self.posted.put, lambda: self.pool, self.workers)
        self.license.on_pool_ready()

    def serve(self, for_s: float) -> None:
        """Carry out what comes until the pool has ended, or the time is over."""
        until_s = now_s() + for_s
        while now_s() < until_s and self.pool.process.poll() is None:
            try:
                self.posted.get(timeout=0.05)()
            except Empty:
                continue


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(pool_license, "OVERDUE_S", 0.1)
    monkeypatch.setattr(pool_license, "SECOND_LOOK_S", 0.1)
    node = Node()
    yield node
    node.license.close()
    for pid in children_of(node.pool.process.pid):
        os.kill(pid, signal.SIGKILL)
    node.pool.process.kill()
    node.pool.process.wait()


def test_pool_that_stands_still_is_killed_with_its_workers_after_its_license(node: Node) -> None:
    """Nobody else ends them, while other nodes begin a world without this one."""
    until(lambda: children_of(node.pool.process.pid), lambda: "no worker")
    (worker,) = children_of(node.pool.process.pid)
    pidfd = os.pidfd_open(worker)
    node.pool.process.send_signal(signal.SIGSTOP)
    node.license.allow_until(now_s() + 0.1)
    node.serve(WAIT_S)
    assert node.pool.process.poll() == -signal.SIGKILL
    until(lambda: _is_over(pidfd), lambda: "the worker lives")
    os.close(pidfd)


def test_license_that_is_cut_is_looked_after_at_its_new_end(node: Node) -> None:
    """Its lease was lost long before the deadline, and the pool stands still."""
    node.pool.process.send_signal(signal.SIGSTOP)
    node.license.allow_until(now_s() + 600.0)
    node.license.allow_until(now_s() + 0.1)
    node.serve(WAIT_S)
    assert node.pool.process.poll() == -signal.SIGKILL


def test_pool_lives_on_while_its_license_is_renewed(node: Node) -> None:
    node.license.allow_until(now_s() + 0.1)
    node.license.allow_until(now_s() + WAIT_S)
    node.serve(QUIET_S)
    assert node.pool.process.poll() is None and len(node.pool.told) == 2


def test_pool_that_ended_its_workers_lives_on(node: Node) -> None:
    """It may have said so just before the second look, to an agent that stood still itself."""
    node.license.allow_until(now_s())
    node.posted.get(timeout=WAIT_S)()
    node.workers.clear()
    node.serve(QUIET_S)
    assert node.pool.process.poll() is None


def test_pool_is_told_its_license_once_it_reads(node: Node) -> None:
    """What is told before fills the socket."""
    node.license.on_pool_exit()
    for number in range(3):
        node.license.allow_until(1e12 + number)
    assert node.pool.told == []
    node.license.on_pool_ready()
    assert node.pool.told == [License(until_s=1e12 + 2)]


def _is_over(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)  # A process that nobody has reaped has ended too.
    return bool(poll.poll(0))

"""A worker's word reaches its own job, whatever number of jobs a node has."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from queue import Queue
from typing import Any

import pytest

from elasticd.channel.wire import pack
from elasticd.channel.worker import Attached, Beat, FromWorker
from elasticd.records.ids import JobName, Life
from elasticd_agent.job.job_guard import JobGuard
from elasticd_agent.job.worker_dispatch import WorkerDispatch
from elasticd_agent.liveness.hang_detector import Frozen, Verdict
from elasticd_agent.loop.inbox import Item
from tests.fixtures.attached import HELLO, ME, WAIT_S, beat

JOBS = [JobName(f"job-{number}") for number in range(50)]
MINE, OTHERS = JOBS[7], JOBS[8]


class Spec:
    def __init__(self, name: JobName) -> None:
        self.name = name


class FakeWorkers:
    """What a job does with what reaches it: it writes it down."""

    def __init__(self, name: JobName) -> None:
        self.spec = Spec(name)
        self.attached = self
        self.heard: list[tuple[int, FromWorker]] = []
        self.verdicts: list[Verdict] = []

    def receive(self, pid: int, message: FromWorker) -> None:
        self.heard.append((pid, message))

    def judge(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)


class Node:
    """Fifty jobs, and the inbox of the thread that serves them."""

    def __init__(self) -> None:
        self.jobs: dict[JobName, Any] = {name: FakeWorkers(name) for name in JOBS}
        self.asked: list[JobName] = []
        self.inbox: Queue[Item] = Queue()
        guard = JobGuard(self.inbox.put, {})
        self.dispatch = WorkerDispatch(
            Life("life"), self.inbox.put, guard, self._workers_of, os.defpath
        )
        self.monitor = self.dispatch.monitor

    def _workers_of(self, job: JobName) -> Any:
        self.asked.append(job)
        return self.jobs.get(job)

    def turn(self) -> None:
        """Do what the next message asks for."""
        self.inbox.get(timeout=WAIT_S)()

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(WAIT_S)
        sock.connect("\0" + self.monitor.name)
        return sock


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.monitor.close()


def say(node: Node, message: Beat) -> int:
    """Have another process attach, say this, and wait for the end of the connection."""
    parent_end, child_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os.read(parent_end, 1)  # Until it is expected.
            sock = node.connect()
            sock.sendall(pack(Attached(pid=os.getpid())) + pack(message))
            sock.recv(1)
        os._exit(0)
    os.close(parent_end)
    node.monitor.expect(pid, job=OTHERS, limit_s=0)
    os.write(child_end, b".")
    os.close(child_end)
    return pid


def test_each_message_reaches_the_job_of_its_worker_and_no_other(node: Node) -> None:
    node.monitor.expect(ME, job=MINE, limit_s=0)
    with node.connect() as sock:
        sock.sendall(HELLO + pack(beat(3)))
        node.turn()
        node.turn()
        other = say(node, beat(4))
        node.turn()
        node.turn()
    assert node.jobs[MINE].heard == [(ME, Attached(pid=ME)), (ME, beat(3))]
    assert node.jobs[OTHERS].heard == [(other, Attached(pid=other)), (other, beat(4))]
    assert all(not job.heard for name, job in node.jobs.items() if name not in (MINE, OTHERS))
    node.monitor.close()
    os.waitpid(other, 0)


def test_a_message_asks_for_one_job_alone(node: Node) -> None:
    """Fifty jobs cost a heartbeat no more than one."""
    node.monitor.expect(ME, job=MINE, limit_s=0)
    with node.connect() as sock:
        sock.sendall(HELLO + pack(beat(1)))
        node.turn()
        node.turn()
    assert node.asked == [MINE, MINE]


def test_verdict_reaches_the_job_of_its_worker(node: Node) -> None:
    node.monitor.expect(ME, job=MINE, limit_s=0)
    verdict = Frozen(pid=ME, why="it does not run")
    node.dispatch._judged(verdict)
    node.turn()
    assert [job.spec.name for job in node.jobs.values() if job.verdicts] == [MINE]
    assert node.jobs[MINE].verdicts == [verdict]


def test_what_an_ended_worker_said_last_reaches_nobody(node: Node) -> None:
    """The job was told of its end, and has forgotten it."""
    node.monitor.expect(ME, job=MINE, limit_s=0)
    with node.connect() as sock:
        sock.sendall(HELLO)
        node.turn()
        sock.sendall(pack(beat(2)))
        late = node.inbox.get(timeout=WAIT_S)
        node.monitor.forget(ME)
        late()
    assert node.jobs[MINE].heard == [(ME, Attached(pid=ME))]
    assert node.monitor.job_of(ME) is None


def test_word_for_a_job_that_is_not_served_any_more_reaches_nobody(node: Node) -> None:
    node.monitor.expect(ME, job=JobName("gone"), limit_s=0)
    with node.connect() as sock:
        sock.sendall(HELLO)
        node.turn()
    assert node.asked == ["gone"]
    assert all(not job.heard for job in node.jobs.values())

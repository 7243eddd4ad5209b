"""A killed worker is told of before its parent has reaped it, by the mutex that it held."""

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Queue
from threading import Thread
from threading import enumerate as enumerate_threads

import pytest

from elasticd.channel.pool import Started
from elasticd_agent.liveness.kill_notice import Killed, notify_of_kill
from elasticd_agent.pool.process.process_table import killed_by
from elasticd_agent.pool.worker.robust_mutex import LOCK_BYTES, hold_robust_mutex
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(30.0)


class Worker:
    """A forked process that does what it is given, and then waits for its end."""

    def __init__(self, be: Callable[[int], object] = lambda fd: None) -> None:
        read_fd, write_fd = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                faulthandler.disable()
                fd = hold_robust_mutex()
                os.write(write_fd, f"{fd}\n".encode())
                be(fd)
                while True:
                    signal.pause()
            finally:
                os._exit(3)
        os.close(write_fd)
        with os.fdopen(read_fd) as told:
            self.mutex_fd = int(told.readline())

    def watch(self) -> Queue[Killed]:
        told: Queue[Killed] = Queue()
        notify_of_kill(Started(worker="w", pid=self.pid, mutex_fd=self.mutex_fd), told.put)
        return told

    def end(self) -> None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


Fork = Callable[..., Worker]


@pytest.fixture
def forked() -> Iterator[Fork]:
    workers: list[Worker] = []

    def fork(*args: Callable[[int], object]) -> Worker:
        workers.append(Worker(*args))
        return workers[-1]

    yield fork
    for worker in workers:
        worker.end()


def watched(worker: Worker) -> Queue[Killed]:
    """Return what is told of it, from when its mutex is waited for on."""
    inode = os.stat(f"/proc/{worker.pid}/fd/{worker.mutex_fd}").st_ino
    told = worker.watch()
    until(lambda: is_mapped(inode), lambda: inode)
    return told


def is_mapped(inode: int) -> bool:
    """Return whether the memory of this mutex of another process is mapped here."""
    with open("/proc/self/maps") as file:
        return any("memfd:elasticd-mutex" in line and f" {inode} " in line for line in file)


def is_watched(pid: int) -> bool:
    return any(thread.name == f"kill-notice-{pid}" for thread in enumerate_threads())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_kill_is_told_while_nobody_has_reaped_the_worker(
    number: signal.Signals, forked: Fork
) -> None:
    worker = forked(lambda fd: signal.signal(number, signal.SIG_DFL) if number != 9 else None)
    told = watched(worker)
    os.kill(worker.pid, number)
    assert told.get(timeout=WAIT_S) == Killed(worker="w", code=-number)
    assert os.waitpid(worker.pid, 0)[0] == worker.pid


def test_kill_before_anybody_watches_is_told_too(forked: Fork) -> None:
    """As long as its memory can still be opened; otherwise the pool tells it."""
    worker = forked()
    held_fd = os.open(f"/proc/{worker.pid}/fd/{worker.mutex_fd}", os.O_RDONLY)
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: killed_by(worker.pid) == signal.SIGKILL, lambda: "it is killed")
    assert os.pread(held_fd, LOCK_BYTES, 0)[3] & 0x40  # The kernel has marked it: OWNER_DIED.
    os.close(held_fd)


def test_worker_that_ends_without_a_signal_is_not_told(forked: Fork) -> None:
    worker = forked(lambda fd: os.read(0, 0) or os._exit(4))
    told = worker.watch()
    assert os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1]) == 4
    until(lambda: not is_watched(worker.pid), lambda: "nobody waits for it")
    assert told.empty()


def test_worker_that_becomes_another_program_lives_on(forked: Fork) -> None:
    """The kernel releases its mutexes with an exec too."""

    def be(fd: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        signal.sigwait([signal.SIGUSR1])
        os.execv(sys.executable, [sys.executable, "-c", "import signal; signal.pause()"])

    worker = forked(be)
    told = watched(worker)
    os.kill(worker.pid, signal.SIGUSR1)
    until(lambda: not is_watched(worker.pid), lambda: "nobody waits for it")
    assert told.empty() and killed_by(worker.pid) == 0


def test_killed_thread_group_counts_and_not_a_killed_child(forked: Fork) -> None:
    """A data loader's process has the memory of the mutex too, and does not own it."""

    def be(fd: int) -> None:
        child = os.fork()
        if child == 0:
            signal.pause()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        Thread(target=signal.pause, daemon=True).start()

    worker = forked(be)
    told = watched(worker)
    until(lambda: len(os.listdir(f"/proc/{worker.pid}/task")) == 2, lambda: "it has two threads")
    assert told.empty() and is_watched(worker.pid)
    os.kill(worker.pid, signal.SIGKILL)
    assert told.get(timeout=WAIT_S).code == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["closed", "file", "pipe", "small"])
def test_descriptor_of_something_else_is_nothing_to_wait_for(kind: str, forked: Fork) -> None:
    def be(fd: int) -> None:
        if kind == "closed":
            os.close(fd)
        elif kind == "file":
            os.dup2(os.open(os.__file__, os.O_RDONLY), fd)
        elif kind == "pipe":
            os.dup2(os.pipe()[0], fd)
        else:
            os.dup2(os.memfd_create("small"), fd)
        os.write(ready_write, b"x")

    ready_read, ready_write = os.pipe()
    worker = forked(be)
    os.read(ready_read, 1)
    told = worker.watch()
    until(lambda: not is_watched(worker.pid), lambda: "nobody waits for it")
    assert told.empty()
    os.close(ready_read)
    os.close(ready_write)


def test_worker_cannot_cut_the_memory_under_its_agent(forked: Fork) -> None:
    read_fd, write_fd = os.pipe()

    def be(fd: int) -> None:
        try:
            os.ftruncate(fd, 0)
        except PermissionError:
            os.write(write_fd, b"refused")

    forked(be)
    assert os.read(read_fd, 7) == b"refused"
    os.close(read_fd)
    os.close(write_fd)

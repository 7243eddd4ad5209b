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
from elasticd_agent.liveness import kill_notice
from elasticd_agent.liveness.kill_notice import Killed, notify_of_kill
from elasticd_agent.pool.process import prctl
from elasticd_agent.pool.process.prctl import adopt_orphans, ask_for_signal_at_parents_end
from elasticd_agent.pool.process.process_table import killed_by, look_up
from elasticd_agent.pool.worker.robust_mutex import LOCK_BYTES, RobustMutex
from tests.fixtures.cluster import until
from tests.fixtures.patience import patience_s

WAIT_S = patience_s(30.0)


class Worker:
    """A forked process that does what it is given, and then waits for its end."""

    def __init__(
        self,
        be: Callable[[int], object] = lambda fd: None,
        release_at: signal.Signals | None = None,
    ) -> None:
        read_fd, write_fd = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                faulthandler.disable()
                mutex = RobustMutex()
                fd = mutex.fd
                if release_at is not None:
                    signal.signal(release_at, lambda *_: mutex.release())
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

    def fork(be: Callable[[int], object] = lambda fd: None) -> Worker:
        workers.append(Worker(be))
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


def test_mutex_that_was_released_tells_nothing() -> None:
    """An error is on its way to the agent then, and a library may still abort the process."""
    worker = Worker(release_at=signal.SIGUSR1)
    try:
        told = watched(worker)
        os.kill(worker.pid, signal.SIGUSR1)
        until(lambda: not is_watched(worker.pid), lambda: "nobody waits for it")
        os.kill(worker.pid, signal.SIGKILL)
        assert told.empty()
    finally:
        worker.end()


def test_children_of_a_killed_worker_are_killed_before_it_is_told(forked: Fork) -> None:
    """They may train, or write a checkpoint, as it did."""
    read_fd, write_fd = os.pipe()

    def be(fd: int) -> None:
        if os.fork() == 0:
            os.write(write_fd, f"{os.getpid()}\n".encode())
            signal.pause()

    worker = forked(be)
    child = int(os.read(read_fd, 20))
    told = watched(worker)
    os.kill(worker.pid, signal.SIGKILL)
    assert told.get(timeout=WAIT_S).code == -signal.SIGKILL
    found = look_up(child)
    is_over = found is None or found.state in "ZX" or bool(killed_by(child)) or _is_struck(child)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    assert is_over
    os.close(read_fd)
    os.close(write_fd)


def test_children_of_a_worker_that_has_ended_are_killed_before_it_is_told(
    forked: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the pool's by then, which may not have looked yet: who waits is late here."""
    wait = kill_notice._wait

    def late(call: int, address: int, pid: int) -> None:
        wait(call, address, pid)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def be(fd: int) -> None:
        os.setsid()
        if os.fork() == 0:
            os.write(write_fd, f"{os.getpid()}\n".encode())
            signal.pause()

    monkeypatch.setattr(kill_notice, "_wait", late)
    read_fd, write_fd = os.pipe()
    adopt_orphans()
    try:
        worker, other = forked(be), forked()
        child = int(os.read(read_fd, 20))
        told = watched(worker)
        os.kill(worker.pid, signal.SIGKILL)
        assert told.get(timeout=WAIT_S).code == -signal.SIGKILL
        found = look_up(child)
        is_over = found is None or found.state in "ZX" or _is_struck(child)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert is_over and not killed_by(other.pid) and not _is_struck(other.pid)
    finally:
        prctl._call(prctl._PR_SET_CHILD_SUBREAPER, 0)
        os.close(read_fd)
        os.close(write_fd)


def _is_struck(pid: int) -> bool:
    """Return whether a SIGKILL is on its way to the process."""
    with suppress(FileNotFoundError), open(f"/proc/{pid}/status") as file:
        pending = [int(line.split()[1], 16) for line in file if line.startswith(("SigP", "ShdP"))]
        return any(each & 1 << signal.SIGKILL - 1 for each in pending)
    return True


def test_end_with_its_parent_is_not_told() -> None:
    """That the pool is gone is told for all of its workers at once."""
    read_fd, write_fd = os.pipe()
    pool = os.fork()
    if pool == 0:
        try:
            worker = Worker(lambda fd: ask_for_signal_at_parents_end(signal.SIGKILL))
            os.write(write_fd, f"{worker.pid} {worker.mutex_fd}\n".encode())
            signal.pause()
        finally:
            os._exit(0)
    pid, fd = map(int, os.read(read_fd, 40).split())
    inode = os.stat(f"/proc/{pid}/fd/{fd}").st_ino
    told: Queue[Killed] = Queue()
    notify_of_kill(Started(worker="w", pid=pid, mutex_fd=fd), told.put)
    until(lambda: is_mapped(inode), lambda: inode)
    os.kill(pool, signal.SIGKILL)
    os.waitpid(pool, 0)
    until(lambda: not is_watched(pid), lambda: "nobody waits for it")
    assert told.empty()
    os.close(read_fd)
    os.close(write_fd)


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

"""Tells that a worker was killed before the kernel has freed its memory and its parent may reap it.

A thread waits for the robust mutex that the worker holds (pool/worker/robust_mutex.py). It only
reads the worker's memory: what a script may have written there can at worst keep the notice away,
and then the end is known when the pool has reaped the worker.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread

from elasticd.channel.pool import Started
from elasticd_agent.pool.process.process_table import (
    Process,
    children_of,
    killed_by,
    look_up,
    mark_of,
)
from elasticd_agent.pool.process.subtree import Subtree
from elasticd_agent.pool.worker.robust_mutex import LOCK_BYTES, OWNER_DIED, OWNER_MASK

__all__ = ["Killed", "notify_of_kill"]

_FUTEX_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
"""The number of the system call futex(2); on other machines there are no such notices."""
_FUTEX_WAIT = 0
_LOOK_AGAIN_S = 60
"""How long one wait takes at most. After it the thread ends if there is no such process."""
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.syscall.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A signal kills the worker: it runs no more, and is about to be reaped."""

    worker: str
    code: int
    """Minus the number of the signal, as in Exited."""


def notify_of_kill(started: Started, on_killed: Callable[[Killed], None]) -> None:
    """Call `on_killed` when a signal kills the worker, from a thread of its own.

    It is called at most once, and not for a worker that ends without a signal, or with its pool.
    """
    pid, mutex_fd = started.pid, started.mutex_fd
    call = _FUTEX_CALLS.get(platform.machine()) if sys.maxsize > 1 << 32 else None
    if call is None or mutex_fd < 0:
        return

    def wait() -> None:
        process = look_up(pid)
        if process is None:
            return
        try:
            address = _map(pid, mutex_fd)
        except (OSError, ValueError):
            return  # It has closed it, has ended, or we may not look.
        try:
            _wait(call, address, pid)
        finally:
            _libc.munmap(address, LOCK_BYTES)
        if number := _kill_of(process, started.worker):
            on_killed(Killed(worker=started.worker, code=-number))

    try:
        Thread(target=wait, name=f"kill-notice-{pid}", daemon=True).start()
    except RuntimeError:
        return  # No more threads: the pool reports the end.


def _kill_of(process: Process, worker: str) -> int:
    """Return the signal that kills the process, after all that descends from it was killed too; 0
    if it lives, or if this is not to be told.
    """
    found = look_up(process.pid)
    if found is None or found.started != process.started:
        return 0  # It is reaped already.
    if found.parent != process.parent:
        return 0  # It ends because its pool is gone: that is told, for all workers at once.
    number = killed_by(process.pid)
    if number:
        _kill_subtree(process, worker)
    return number


def _kill_subtree(process: Process, worker: str) -> None:
    """Kill all that descends from the process, and fellows of a first thread that alone was killed.

    The children of one that has ended by now are its pool's, which will kill them too.
    """
    subtree = Subtree()
    subtree.kill(process.pid, process.started)
    for pid in children_of(process.parent):
        child = look_up(pid)
        if child is None or pid == process.pid or child.parent != process.parent:
            continue
        if child.session == process.pid or mark_of(pid) == worker:
            subtree.kill(pid, child.started)


def _map(pid: int, mutex_fd: int) -> int:
    """Map the memory of the worker's mutex, to read it; return its address.

    Raises: OSError, ValueError: there is none.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    fd = os.open(f"/proc/{pid}/fd/{mutex_fd}", flags)
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        found = os.fstat(fd)
        is_cut = not seals & fcntl.F_SEAL_SHRINK or found.st_size < LOCK_BYTES
        if is_cut or found.st_blksize != LOCK_BYTES:  # Huge pages have larger blocks.
            raise ValueError("no memory of a mutex")
        address = _libc.mmap(None, LOCK_BYTES, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    finally:
        os.close(fd)
    if address in (None, _FAILED):
        raise OSError(ctypes.get_errno(), "mmap")
    assert isinstance(address, int)
    return address


def _wait(call: int, address: int, pid: int) -> None:
    """Wait until the mutex is not the process's own any more, or the process is gone."""
    word = ctypes.c_uint32.from_address(address)
    limit = _Timespec(_LOOK_AGAIN_S, 0)
    while True:
        value = word.value
        if value & OWNER_DIED or value & OWNER_MASK != pid:
            return
        result = _libc.syscall(
            ctypes.c_long(call),
            ctypes.c_void_p(address),
            ctypes.c_int(_FUTEX_WAIT),
            ctypes.c_uint32(value),
            ctypes.byref(limit),
            None,
            ctypes.c_int(0),
        )
        if result == 0:
            continue
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
            return  # A filter on system calls: to ask again would spin.
        if number == errno.ETIMEDOUT and look_up(pid) is None:
            return

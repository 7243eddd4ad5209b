"""A robust mutex that a worker holds as long as it lives, so that its death is known at once.

The kernel tells the parent of a killed process, and closes its sockets, only once it has taken the
process's memory apart: that takes some 75 ms for each GiB of small pages. It releases the robust
mutexes of a dying thread before that, and wakes whoever waits for one. The agent waits
(liveness/kill_notice.py).
"""

import ctypes
import fcntl
import mmap
import os
import threading

__all__ = ["LOCK_BYTES", "OWNER_DIED", "OWNER_MASK", "RobustMutex"]

OWNER_DIED = 0x40000000
"""The bit of the lock's word that the kernel sets when the owner dies (linux/futex.h)."""
OWNER_MASK = 0x3FFFFFFF
"""The bits of the word that are the thread id of the owner."""
LOCK_BYTES = mmap.PAGESIZE
"""The size of the shared memory; the lock's word is its first."""

_WAITERS = 0x80000000
"""Without this bit the kernel would wake nobody."""
_LEAST_FD = 250
"""As of the report's pipe: scripts expect the low numbers to be free."""
_ATTRIBUTE_BYTES = 64  # glibc's pthread_mutexattr_t has 4 or 8.
_PTHREAD_PROCESS_SHARED = 1
_PTHREAD_MUTEX_ROBUST = 1
_PROT = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value


class RobustMutex:
    """A mutex that this thread has locked, and holds until it ends, or releases it."""

    def __init__(self) -> None:
        """Lock a new one. Its `fd` is -1 where the system has no such mutex.

        Then the worker's end is known when the pool has reaped it.
        """
        self.fd = -1
        """The descriptor of the memory that the mutex is in."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._address = 0
        try:
            fd = _high(os.memfd_create("elasticd-mutex", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        except (OSError, AttributeError):
            return
        try:
            os.ftruncate(fd, LOCK_BYTES)
            # The agent reads this memory: it must not be cut under its hands.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            self._address = _locked(self._libc, fd)
        except (OSError, AttributeError):
            self._address = 0
        if self._address:
            self.fd = fd
        else:
            os.close(fd)

    def release(self) -> None:
        """Release it: what ends this process from now on is told by the pool, and by it alone."""
        if self._address:
            self._libc.pthread_mutex_unlock(ctypes.c_void_p(self._address))
            self._address = 0


def _high(fd: int) -> int:
    """Return a high descriptor of the same file, and free the low number."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
    finally:
        os.close(fd)


def _locked(libc: ctypes.CDLL, fd: int) -> int:
    """Lock a mutex at the beginning of the file; return its address, 0 where that cannot be done or
    its word is not as we expect it.
    """
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    # It stays mapped to the end, as the kernel reads it then: so it is no `mmap` object.
    address = libc.mmap(None, LOCK_BYTES, _PROT, mmap.MAP_SHARED, fd, 0)
    if address in (None, _FAILED):
        return 0
    attribute = ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    mutex = ctypes.c_void_p(address)
    failed = (
        libc.pthread_mutexattr_init(attribute)
        or libc.pthread_mutexattr_setpshared(attribute, _PTHREAD_PROCESS_SHARED)
        or libc.pthread_mutexattr_setrobust(attribute, _PTHREAD_MUTEX_ROBUST)
        or libc.pthread_mutex_init(mutex, attribute)
        or libc.pthread_mutex_lock(mutex)
    )
    if failed:
        return 0
    word = ctypes.c_uint32.from_address(address)
    if word.value & OWNER_MASK != threading.get_native_id():
        libc.pthread_mutex_unlock(mutex)
        return 0  # A C library that keeps the owner elsewhere.
    word.value |= _WAITERS
    return int(address)

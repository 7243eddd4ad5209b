"""Shared memory in pages of 2 MiB where the kernel has some: a GiB is 512 pages, not 262,144.

Each process that maps the memory saves a page fault for every small page, or every sixteenth, and
the work of unmapping them: together two thirds of the time that a copy of the memory takes. The
kernel gives such pages to a memfd at a fault only where an administrator has allowed it for all
(shmem_enabled), which is rare. MADV_COLLAPSE (Linux 6.1) asks for this memory alone. Rejected:
hugetlbfs, whose pages must be set aside when the machine starts.

A page of that size is mapped as one only where its address is a multiple of it, which neither
`mmap.mmap` nor the kernel sees to.
"""

import ctypes
import mmap
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["huge_page_bytes", "map_aligned", "take_huge_pages"]

_PAGE_SIZE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_MACHINES = frozenset({"x86_64", "aarch64"})
"""Where the numbers below are these."""
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_MADV_COLLAPSE = 25
_FAILED = ctypes.c_void_p(-1).value

STEP_BYTES = 32 << 20
"""How much is asked for at a time."""
LEAST_BYTES_PER_S = 2e9
"""Below this rate, in processor time, the kernel is moving other pages out of the way: then the
rest is taken as ordinary pages."""

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_madvise = _libc.madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_lost: list[mmap.mmap] = []
"""Address space of which a part may be another's by now: it must never be unmapped."""


@cache
def huge_page_bytes() -> int:
    """Return the size of a huge page; 0 if there are none."""
    if os.uname().machine in _MACHINES:
        with suppress(OSError, ValueError):
            return int(_PAGE_SIZE.read_text())
    return 0


def map_aligned(file: int, size: int) -> tuple[mmap.mmap, int]:
    """Map a file; return the mapping, and how many of its first bytes are not the file's.

    The file is aligned to huge pages if it is at least as large as one. The caller must see to it
    that forked processes do not inherit the mapping.

    Raises: OSError: there is not so much address space.
    """
    page = huge_page_bytes()
    if page and size >= page:
        with suppress(OSError):
            return _over_reserved(file, size, page)
    return mmap.mmap(file, size), 0


def take_huge_pages(file: int, address: int, size: int) -> None:
    """Turn the pages of a fresh file, mapped at this address, into huge ones as far as possible."""
    page = huge_page_bytes()
    if not page or address % page:
        return
    began_s, done = time.thread_time(), 0
    while done + page <= size and time.thread_time() - began_s <= done / LEAST_BYTES_PER_S + 0.1:
        step = min(STEP_BYTES, size - done) // page * page
        for at in range(done, done + step, page):
            os.posix_fallocate(file, at, mmap.PAGESIZE)  # What is empty stays as it is.
        if _madvise(address + done, step, _MADV_COLLAPSE):
            return
        done += step


def _over_reserved(file: int, size: int, page: int) -> tuple[mmap.mmap, int]:
    """Map the file over address space that is reserved for it and that nobody touches."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    reserved = mmap.mmap(-1, size + page, flags=flags)
    first = ctypes.addressof(ctypes.c_char.from_buffer(reserved))
    before = -first % page
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED
    if _mmap(first + before, size, access, kind, file, 0) == _FAILED:
        _lost.append(reserved)
        raise OSError(ctypes.get_errno(), "cannot be mapped")
    return reserved, before

"""Memory that two processes share and that has no name: a memfd, and its mapping here.

Forked processes get neither: a data loader's processes would keep the memory as long as they live,
which may be the whole run.
"""

import ctypes
import mmap
import os
from contextlib import suppress

from elasticd.errors import EnvironmentProblem
from elasticd.keeper.memory.free_memory import room_bytes
from elasticd.keeper.memory.huge_pages import map_aligned, take_huge_pages

__all__ = ["SLOWEST_BYTES_PER_S", "SharedMemory"]

NAME = "elasticd-checkpoint"
SLOWEST_BYTES_PER_S = 50e6
"""Fresh memory comes at least this fast, even in a virtual machine whose host has to find it."""

_MADV_POPULATE_WRITE = 23  # Linux 5.14
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class SharedMemory:
    """A mapping of a memfd. It is closed with the last reference to it."""

    def __init__(self, file: int) -> None:
        """Map the whole of `file`, which belongs to this object from now on.

        Raises: EnvironmentProblem: there is not so much address space.
        """
        self.file = file
        self.size = os.fstat(file).st_size
        self._map: mmap.mmap | None = None
        self._first = 0
        """Where in the mapping the file's first byte is."""
        try:
            if self.size:
                self._map, self._first = map_aligned(file, self.size)
        except OSError as exc:
            os.close(file)
            self.file = -1
            raise EnvironmentProblem(
                f"{self.size} bytes of shared memory cannot be mapped ({exc.strerror}): free some "
                "memory on this machine."
            ) from exc
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTFORK)

    @classmethod
    def new(cls, size: int, *, name: str = NAME, touch: bool = True) -> "SharedMemory":
        """Take fresh memory; with `touch` fault all pages in now, so that the first copy is not
        slower.

        Raises: EnvironmentProblem: there is not so much memory.
        """
        room = room_bytes()
        if room is not None and size > room:
            raise EnvironmentProblem(
                f"{size} bytes of shared memory cannot be had (there are {room}): free some memory "
                "on this machine, or raise the container's limit."
            )
        file = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, size)
        except OSError as exc:
            os.close(file)
            raise _cannot_be_had(size, exc) from exc
        memory = cls(file)
        if size and touch:
            try:
                take_huge_pages(file, memory._address, size)
                os.posix_fallocate(file, 0, size)
            except OSError as exc:
                del memory
                raise _cannot_be_had(size, exc) from exc
        return memory

    @property
    def view(self) -> memoryview:
        if self._map is None:
            return memoryview(bytearray())
        return memoryview(self._map)[self._first : self._first + self.size]

    def populate(self) -> None:
        """Map the pages into this process now, so that the first copy is not slower."""
        if self._map is not None:
            # Not by `mmap.madvise`: it would hold the interpreter's lock meanwhile. What an older
            # kernel answers is no matter.
            _madvise(self._address, self.size, _MADV_POPULATE_WRITE)

    @property
    def _address(self) -> int:
        assert self._map is not None
        return ctypes.addressof(ctypes.c_char.from_buffer(self._map)) + self._first

    def __del__(self) -> None:
        if getattr(self, "file", -1) >= 0:
            with suppress(OSError):
                os.close(self.file)
            self.file = -1


def _cannot_be_had(size: int, exc: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{size} bytes of shared memory cannot be had ({exc.strerror}): free some memory on this "
        "machine, or raise the container's limit."
    )


def _unmap() -> None:
    """Drop the memory in a forked process, both here and in `mmap`'s copies.

    The descriptor numbers stay occupied, by /dev/null, so that a later close cannot hit another's
    file.
    """
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            for each in os.listdir("/proc/self/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/self/fd/{each}").startswith(f"/memfd:{NAME}"):
                        os.dup2(nothing, int(each), inheritable=False)
        finally:
            os.close(nothing)


os.register_at_fork(after_in_child=_unmap)

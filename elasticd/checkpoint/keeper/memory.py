"""Memory that two processes share and that has no name: a memfd, and its mapping here."""

import mmap
import os
from contextlib import suppress

from elasticd.errors import EnvironmentProblem

__all__ = ["Memory"]


class Memory:
    """A mapping of a memfd. Closed with the last reference to it."""

    def __init__(self, file: int) -> None:
        """Map the whole of `file`, which is ours from now on.

        Raises:
            EnvironmentProblem: there is not so much address space.
        """
        self.file = file
        self.size = os.fstat(file).st_size
        try:
            self._map = mmap.mmap(file, self.size) if self.size else None
        except OSError as exc:
            os.close(file)
            self.file = -1
            raise EnvironmentProblem(
                f"{self.size} bytes of shared memory cannot be mapped ({exc.strerror}): free some "
                "memory on this machine."
            ) from exc
        if self._map is not None:
            # The processes that a data loader forks must not keep it alive.
            self._map.madvise(mmap.MADV_DONTFORK)

    @classmethod
    def new(cls, size: int, *, name: str = "elasticd-checkpoint", touch: bool = True) -> "Memory":
        """Take fresh memory; with `touch` all of it now, so that the first copy is not slower.

        Raises:
            EnvironmentProblem: there is not so much.
        """
        file = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, size)
            if size and touch:
                os.posix_fallocate(file, 0, size)
        except OSError as exc:
            os.close(file)
            raise EnvironmentProblem(
                f"{size} bytes of shared memory cannot be had ({exc.strerror}): free some memory "
                "on this machine, or raise the container's limit."
            ) from exc
        return cls(file)

    @property
    def view(self) -> memoryview:
        return memoryview(self._map) if self._map is not None else memoryview(bytearray())

    def populate(self) -> None:
        """Enter the pages into this process's tables, so that the first copy is not slower."""
        if self._map is not None:
            with suppress(OSError, AttributeError, ValueError):
                self._map.madvise(23)  # MADV_POPULATE_WRITE, Linux 5.14

    def __del__(self) -> None:
        if getattr(self, "file", -1) >= 0:
            with suppress(OSError):
                os.close(self.file)
            self.file = -1

"""Keeps a log below a limit on disk without log rotation, and loses no byte that is written.

A worker writes into its log directly, through as many descriptors as its C libraries and children
have. To rename the file would leave them writing into the old one; to copy and truncate it would
lose what is written in between. Instead the file system is told to give back the room of a part of
the file (`fallocate` with FALLOC_FL_PUNCH_HOLE): the writers notice nothing, offsets stay the same,
and a reader who follows the log goes on. The file keeps its apparent size (`ls -l`) and takes less
room (`du`).

What is given back is the middle: the first lines say how a run was set up, the last what happened.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["HEAD_BYTES", "keep_below"]

HEAD_BYTES = 1 << 16
"""How much of each log stays, from its begin on."""
SLACK = 8
"""An eighth of the limit more is let grow before room is given back, so that it is not done for
each line."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_UNIT_BYTES = 512
"""The unit of `st_blocks`, whatever the size of the file system's blocks is."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate64.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def keep_below(path: Path, limit_bytes: int) -> int:
    """Give back the middle of a log that takes more room than that; return where the hole ends.

    It returns 0 if the log takes less, or does not exist.

    Raises:
        OSError: the file system cannot do that (NFS before 4.2, some that live in user space).
    """
    with suppress(FileNotFoundError):
        stat = path.stat()
        if stat.st_blocks * _UNIT_BYTES <= limit_bytes + limit_bytes // SLACK + HEAD_BYTES:
            return 0
        block = max(stat.st_blksize, 4096)
        end = (stat.st_size - limit_bytes) // block * block
        begin = -(-HEAD_BYTES // block) * block
        if end <= begin:
            return 0
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if _libc.fallocate64(fd, _PUNCH_HOLE | _KEEP_SIZE, begin, end - begin) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
        finally:
            os.close(fd)
        return end
    return 0

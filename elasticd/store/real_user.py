"""Reads files as the user who started this process, while the process acts as another one.

An agent with `--worker-user` acts as the user of its workers, so that the kernel judges all that it
does with the files of jobs by the rights of jobs. The keys of its certificates need not be theirs
to read. Linux has a user for files alone, which goes by thread: no other thread, and nothing else
that this one does, gets the rights back meanwhile. Rejected: to change the effective user back for
a moment, which changes it for all threads.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["reading_as_real_user"]

_libc = ctypes.CDLL(None)


@contextmanager
def reading_as_real_user() -> Iterator[None]:
    """Open files by the rights of the real user and group, in this thread; does nothing where those
    are also the effective ones.
    """
    if os.getuid() == os.geteuid():
        yield
        return
    _libc.setfsgid(os.getgid())
    _libc.setfsuid(os.getuid())
    try:
        yield
    finally:
        _libc.setfsuid(os.geteuid())
        _libc.setfsgid(os.getegid())

"""Sets the name under which `ps`, `top` and `pgrep -f` show this process.

Workers are forked from one pool, so all of them would be shown with its command line. `ps` reads
the title from the memory in which the kernel put the arguments at the program's start. This memory
belongs to the process, and in a forked child it is a copy, so it can be overwritten. The new text
may be no longer than the old one.

Rejected: setproctitle (a compiled dependency for twenty lines), and PR_SET_MM, with which a title
could have any length: many kernels and all sandboxes refuse it.
"""

import ctypes
from contextlib import suppress

__all__ = ["rename", "set_title", "worker_title"]

_PR_SET_NAME = 15
_NAME_BYTES = 15
"""The bytes of a thread's name that the kernel keeps, without the NUL."""
_ARG_START = 48 - 3
"""The index of the field: proc(5) counts from 1; two fields are before the state, which is the
third."""

_libc = ctypes.CDLL(None)
_is_ours = False
"""True if the memory of the arguments has a title of elasticd, and not a person's command line."""


def worker_title(job: str, rank: str | int | None) -> tuple[str, str]:
    """Return the title and the name of a worker; `rank` is None if it waits for its first world."""
    if rank is None:
        return f"elasticd: {job} waits for a world", "standby"
    return f"elasticd: {job} rank {rank}", f"rank{rank}"


def set_title(title: str, name: str) -> None:
    """Show this process as `title`, and its main thread as `name`; text without room is cut off."""
    global _is_ours
    _set_name(name)
    start, room = _arguments()
    if room > 1:
        text = title.encode(errors="replace")[: room - 1]
        ctypes.memmove(start, text.ljust(room, b"\0"), room)
        _is_ours = True


def rename(title: str, name: str) -> None:
    """Change the title of a process that became another rank, if elasticd set the title."""
    if _is_ours:
        set_title(title, name)
    else:
        _set_name(name)


def _set_name(name: str) -> None:
    _libc.prctl(_PR_SET_NAME, name.encode(errors="replace")[:_NAME_BYTES], 0, 0, 0)


def _arguments() -> tuple[int, int]:
    """Return the arguments' address in memory, and their size in bytes; (0, 0) if not known."""
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            # The name in parentheses may itself contain spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_START + 1])
        if 0 < start < end:
            return start, end - start
    return 0, 0

"""The name under which `ps`, `top` and `pgrep -f` show this process.

Workers are forked from one pool, so all of them would be shown with its command line. What `ps`
shows is read from the memory in which the kernel put the arguments when the program was started; it
is ours, and in a forked child a copy, so it can be written over. The new text may be no longer than
the old one.

Rejected: setproctitle (a compiled dependency for twenty lines), and PR_SET_MM, with which a title
could be of any length: many kernels and all sandboxes refuse it.
"""

import ctypes
from contextlib import suppress

__all__ = ["rename", "set_title", "worker_title"]

_PR_SET_NAME = 15
_NAME_BYTES = 15
"""How much of a thread's name the kernel keeps, without the NUL."""
_ARG_START = 48 - 3
"""proc(5) counts the fields from 1; two stand before the state, the third."""

_libc = ctypes.CDLL(None)
_is_ours = False
"""True if the memory of the arguments holds a title of ours, and not what a person typed."""


def worker_title(job: str, rank: str | int | None) -> tuple[str, str]:
    """Make the title and the name of a worker; `rank` None: it waits for its first world."""
    if rank is None:
        return f"elasticd: {job} waits for a world", "standby"
    return f"elasticd: {job} rank {rank}", f"rank{rank}"


def set_title(title: str, name: str) -> None:
    """Show this process as `title`, its main thread as `name`; text without room is cut off."""
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
    """Return where the arguments stand in our memory, and how many bytes; (0, 0): not known."""
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            # The name in parentheses may hold spaces and parentheses itself.
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_START + 1])
        if 0 < start < end:
            return start, end - start
    return 0, 0

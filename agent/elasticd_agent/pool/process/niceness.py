"""Lets a process that is only being prepared yield to those that train, if this can be undone."""

import os
from contextlib import suppress

__all__ = ["can_undo", "undo"]

_CAP_SYS_NICE = 23


def can_undo() -> bool:
    """Return True if this process may lower its niceness again; if not, do not raise it."""
    with suppress(OSError, ValueError), open("/proc/self/status", errors="replace") as status:
        for line in status:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_NICE & 1)
    return False


def undo(pid: int, niceness: int = 0) -> None:
    """Give all threads of a process this niceness; do nothing if the kernel does not permit it."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(thread), niceness)

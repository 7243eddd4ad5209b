"""What /proc says of other processes. Every answer may be old by the time it is used."""

import os
from dataclasses import dataclass

from elasticd_agent.pool.process.mark import read_mark

__all__ = [
    "Process",
    "children_of",
    "is_being_freed",
    "is_running",
    "killed_by",
    "look_up",
    "mark_of",
    "private_bytes",
    "pss_bytes",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    parent: int
    session: int
    started: int
    """Clock ticks since boot; with the pid it names a process, which a pid alone does not."""
    state: str
    threads: int


_FLAGS = 6
_EXIT_CODE = 49
"""Places among the fields of /proc/PID/stat after the name (proc(5) counts them from 3)."""
_PF_EXITING = 4


def look_up(pid: int) -> Process | None:
    """Read /proc/PID/stat; None if there is no such process."""
    fields = _stat_of(pid)
    if not fields:
        return None
    return Process(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        threads=int(fields[17]),
        started=int(fields[19]),
    )


def killed_by(pid: int) -> int:
    """Return the signal that ends a process's first thread, which is on its way to the end or not
    reaped yet; 0 if it lives, ends without one, is gone, or we may not know.
    """
    fields = _stat_of(pid)
    if len(fields) <= _EXIT_CODE or not int(fields[_FLAGS]) & _PF_EXITING:
        return 0
    return int(fields[_EXIT_CODE]) & 0x7F


def is_being_freed(pid: int) -> bool:
    """Return whether the kernel takes apart the memory of a process that ends: that takes some
    75 ms for each GiB, and is no hang.
    """
    fields = _stat_of(pid)
    return bool(fields) and fields[0] == b"R" and bool(int(fields[_FLAGS]) & _PF_EXITING)


def is_running(pid: int, started: int) -> bool:
    """Return True if this very process can still hold something.

    A zombie holds nothing, unless it is a first thread that ended before its fellows.
    """
    found = look_up(pid)
    if found is None or found.started != started:
        return False
    return found.state not in "ZX" or found.threads > 1


def children_of(pid: int) -> list[int]:
    """List a process's children, zombies too.

    The list is complete only if the process does not run meanwhile: ask again until nothing new
    appears.
    """
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(int(word) for word in file.read().split())
    except FileNotFoundError:
        # A thread ended, the process ended, or a kernel built without CONFIG_PROC_CHILDREN.
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return _children_by_scan(pid)
    except OSError:
        pass
    return found


def mark_of(pid: int) -> str:
    """Return the worker that a process descends from, by its environment; empty if it
    has no mark.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return read_mark(file.read())
    except OSError:
        return ""


def pss_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, each shared page counted by its share; 0 if not
    known.
    """
    return _memory_bytes(pid, b"Pss:")


def private_bytes(pid: int) -> int:
    """Return the memory in bytes that a process shares with no other; 0 if not known."""
    return _memory_bytes(pid, b"Private_")


def _memory_bytes(pid: int, prefix: bytes) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return sum(1024 * int(line.split()[1]) for line in file if line.startswith(prefix))
    except (OSError, ValueError, IndexError):
        return 0


def _children_by_scan(pid: int) -> list[int]:
    others = (look_up(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [other.pid for other in others if other is not None and other.parent == pid]


def _stat_of(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name; none if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return []
    # The name in parentheses may hold spaces and parentheses itself.
    return text[text.rindex(b")") + 2 :].split()

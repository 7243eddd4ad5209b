"""Whether there is memory for processes that only wait.

A parked worker shares nearly all of its memory. But where the kernel promises no more than there is
(vm.overcommit_memory 2), it counts for each of them all memory that the process could write to, so
that workers that train would be refused memory.
"""

from pathlib import Path

from elasticd.telemetry.cgroup import GROUPS, PROC, memory_groups

__all__ = ["PARKED_LIMIT", "PRIVATE_LIMIT_BYTES", "why_no_room"]

PARKED_LIMIT = 16
"""The most of one pool: more workers than that are rarely lost at once, and each takes a fork."""
PRIVATE_LIMIT_BYTES = 20 << 20
"""The memory that one may have to itself; where it takes more, none is parked."""
ROOM_BYTES = 2 * PARKED_LIMIT * PRIVATE_LIMIT_BYTES
"""Twice of what all of them take at most must be free."""
_STRICT = "2"


def why_no_room(proc: Path = PROC, groups: Path = GROUPS) -> str:
    """Return in a few words why no worker should be parked here now; empty if there is room."""
    if _text(proc / "sys/vm/overcommit_memory").strip() == _STRICT:
        return "vm.overcommit_memory is 2, which counts each with all the memory that it shares"
    rooms = [group.room_bytes for group in memory_groups(proc, groups)]
    if any(room is not None and room < ROOM_BYTES for room in (*rooms, _available_bytes(proc))):
        return f"less than {ROOM_BYTES >> 20} MiB of memory are free here"
    return ""


def _available_bytes(proc: Path) -> int | None:
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

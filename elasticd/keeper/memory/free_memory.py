"""How much memory this node can still give.

The keeper asks before it takes memory, because Linux grants more than there is and kills a process
later.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from elasticd.telemetry.cgroup import GROUPS, PROC, memory_groups

__all__ = ["room_bytes"]


def room_bytes(proc: Path = PROC, groups: Path = GROUPS) -> int | None:
    """Return the bytes that the machine and each of our cgroups have left; None if unknown."""
    return min(_rooms(proc, groups), default=None)


def _rooms(proc: Path, groups: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, KeyError, IndexError):
        rows = (line.split() for line in (proc / "meminfo").read_text().splitlines())
        yield 1024 * int({row[0]: row[1] for row in rows if len(row) > 1}["MemAvailable:"])
    for group in memory_groups(proc, groups):
        room = group.room_bytes
        if room is not None:
            yield room

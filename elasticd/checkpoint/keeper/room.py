"""How much memory can be taken here: asked first, since Linux gives it and kills somebody later."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["room_bytes"]

HIERARCHY_LIMIT = 32
"""Groups of processes, one within the other."""


def room_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the machine and each group of processes we are in have left; None: unknown."""
    return min(_rooms(proc, groups), default=None)


def _rooms(proc: Path, groups: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, KeyError):
        yield 1024 * _table(proc / "meminfo")["MemAvailable:"]
    folder = groups
    with suppress(OSError, ValueError):
        # Version 2 has one line, `0::/PATH`; a container may see its own group as the root.
        path = (proc / "self" / "cgroup").read_text().strip().rpartition("0::/")[2]
        folder = groups / path
    for _ in range(HIERARCHY_LIMIT):
        with suppress(OSError, ValueError, KeyError):
            most = int((folder / "memory.max").read_text())  # `max`: there is no limit.
            used = int((folder / "memory.current").read_text())
            kinds = _table(folder / "memory.stat")
            yield most - used + kinds["active_file"] + kinds["inactive_file"]
        if folder == groups or groups not in folder.parents:
            return
        folder = folder.parent


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1}

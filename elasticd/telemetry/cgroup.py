"""Reads the memory limits and kill counts of this process's cgroups.

A container has a cgroup of its own, whose limit is the container's. Version 1 and version 2 have
different files for the same facts; a machine may mount both, and then the version with the memory
controller counts. Inside a container the path in /proc is often that of the host, so only the
groups that are visible from the container count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MemoryGroup",
    "MemoryLimit",
    "killed_together",
    "memory_groups",
    "memory_limit",
    "oom_kill_count",
]

GROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")
HIERARCHY_LIMIT = 32
"""The largest number of nested groups that are read."""
_NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page, version 2 as `max`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    limit: str
    usage: str
    kills: str
    cache: tuple[str, ...]
    """Rows of memory.stat for the page cache, which the kernel frees when memory is needed."""


_V1 = _Files(
    limit="memory.limit_in_bytes",
    usage="memory.usage_in_bytes",
    kills="memory.oom_control",
    cache=("total_active_file", "total_inactive_file"),
)
_V2 = _Files(
    limit="memory.max",
    usage="memory.current",
    kills="memory.events",
    cache=("active_file", "inactive_file"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """The least limit of this process's groups."""

    size_bytes: int
    path: Path
    """The file that contains the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """One cgroup; a value that it does not have is None. Each property reads its file again."""

    folder: Path
    files: _Files

    @property
    def limit(self) -> MemoryLimit | None:
        """Return the limit of this cgroup itself, without its parents'; None if there is none."""
        path = self.folder / self.files.limit
        found = _number(path)
        if found is None or found >= _NO_LIMIT:
            return None
        return MemoryLimit(size_bytes=found, path=path)

    @property
    def room_bytes(self) -> int | None:
        """Return the bytes left under the limit, with those that the page cache would free."""
        limit, used = self.limit, _number(self.folder / self.files.usage)
        if limit is None or used is None:
            return None
        rows = _rows(self.folder / "memory.stat")
        return limit.size_bytes - used + sum(rows.get(name, 0) for name in self.files.cache)

    @property
    def oom_kill_count(self) -> int | None:
        """Return how many processes of the group the kernel has killed because memory was short."""
        return _rows(self.folder / self.files.kills).get("oom_kill")


def memory_groups(proc: Path = PROC, groups: Path = GROUPS) -> Iterator[MemoryGroup]:
    """Yield the visible groups of this process, from the innermost outwards."""
    top, path, files = _place(proc, groups)
    folder = top / path if ".." not in path.split("/") else top
    for _ in range(HIERARCHY_LIMIT):
        yield MemoryGroup(folder=folder, files=files)
        if folder == top:
            return
        folder = folder.parent


def memory_limit(proc: Path = PROC, groups: Path = GROUPS) -> MemoryLimit | None:
    """Return the least limit of all groups of this process; None if none is visible."""
    found = (group.limit for group in memory_groups(proc, groups))
    return min(
        (each for each in found if each is not None),
        key=lambda limit: limit.size_bytes,
        default=None,
    )


def oom_kill_count(proc: Path = PROC, groups: Path = GROUPS) -> int | None:
    """Return how many processes of the innermost group the kernel killed for lack of memory.

    The result is None if no group has the count. The count of the outermost group covers the whole
    machine, so only the innermost group that has one is read.
    """
    found = (group.oom_kill_count for group in memory_groups(proc, groups))
    return next((each for each in found if each is not None), None)


def killed_together(proc: Path = PROC, groups: Path = GROUPS) -> Path | None:
    """Return the file that makes the kernel kill the whole group together; None if there is none.

    Kubelets since 1.28 set this for each container on cgroup v2, unless singleProcessOOMKill is
    set.
    """
    paths = (group.folder / "memory.oom.group" for group in memory_groups(proc, groups))
    return next((path for path in paths if _number(path) == 1), None)


def _place(proc: Path, groups: Path) -> tuple[Path, str, _Files]:
    """Return the folder of the memory controller's hierarchy, and this process's path in it."""
    path = ""
    try:
        lines = (proc / "self" / "cgroup").read_text(errors="surrogateescape").splitlines()
    except (OSError, ValueError):
        lines = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, named = rest.partition(":")
        if "memory" in controllers.split(","):
            return groups / "memory", named.strip("/"), _V1
        if number == "0" and not controllers:
            path = named.strip("/")
    return groups, path, _V2


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # There is no such file, or it has `max`.
        return None


def _rows(path: Path) -> dict[str, int]:
    """Read lines that have a name and a number; return nothing if there is no such file."""
    try:
        words = (line.split() for line in path.read_text().splitlines())
        return {row[0].rstrip(":"): int(row[1]) for row in words if len(row) > 1}
    except (OSError, ValueError):
        return {}

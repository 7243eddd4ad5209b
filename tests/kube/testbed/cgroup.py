"""The control groups of a cluster: one for each node, under one for all, in every hierarchy."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

__all__ = ["kill_cgroup", "make_cgroup", "remove_cgroup", "cgroups_left"]

_MOUNT_FIELDS_TYPE = 2


def make_cgroup(name: str) -> None:
    """Make a group in every hierarchy of version 1, and in that of version 2; like `a/b`."""
    for top in _hierarchies():
        folder = top / name
        folder.mkdir(parents=True, exist_ok=True)
        _inherit_cpuset(top, folder)


def kill_cgroup(name: str) -> None:
    """Kill every process in a group or below it."""
    for folder in cgroups_left(name):
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def remove_cgroup(name: str) -> bool:
    """Remove a group and those below it; False while a process is still in one of them."""
    for folder in sorted(cgroups_left(name), key=lambda path: -len(path.parts)):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not cgroups_left(name)


def cgroups_left(name: str) -> list[Path]:
    """Return the folders of a group and of those below it."""
    tops = [top / name for top in _hierarchies() if (top / name).is_dir()]
    return [Path(path) for top in tops for path, _, _ in os.walk(top)]


def _hierarchies() -> list[Path]:
    return sorted(set(_mounted()))


def _mounted() -> Iterator[Path]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[_MOUNT_FIELDS_TYPE] in ("cgroup", "cgroup2"):
            yield Path(fields[1])


def _inherit_cpuset(top: Path, folder: Path) -> None:
    """Give the new groups their parent's CPUs: with none no process may enter them."""
    if not (top / "cpuset.cpus").exists():
        return
    for group in (*reversed(folder.relative_to(top).parents), folder.relative_to(top)):
        for setting in ("cpuset.cpus", "cpuset.mems"):
            path = top / group / setting
            if path.parent != top and not path.read_text().strip():
                path.write_text((path.parent.parent / setting).read_text())

"""The processes of a container, as this machine's kernel shows them.

Whatever a node is made of, its containers are control groups of this kernel, named by the
container's id, and /proc shows who is in them by the pids that *we* see; `NSpid` has the pid that
the process sees itself.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Contained",
    "MemoryRoom",
    "began_ticks",
    "contained",
    "in_container",
    "inner_pid",
    "process_name",
]

_WORKER, _FILLER = b"ELASTICD_WORKER=", b"_"
_DEAD = "ZX"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contained:
    """One process of a container."""

    pid: int
    """The process id on this machine."""
    inner_pid: int
    """The process id inside the container; the container ends with its process 1."""
    began_ticks: int
    is_worker: bool


class MemoryRoom:
    """What the container of a process may still take."""

    def __init__(self, pid: int) -> None:
        self._limit, self._used = _memory_files(Path(f"/proc/{pid}/cgroup").read_text())
        self._before = self._limit.read_text()

    def limit(self, room_bytes: int) -> None:
        """Limit the container's memory to what it uses now plus `room_bytes`."""
        self._limit.write_text(str(int(self._used.read_text()) + room_bytes))

    def free(self) -> None:
        """Restore the container's limit; a container that has ended needs nothing."""
        with suppress(FileNotFoundError):
            self._limit.write_text(self._before)


def _memory_files(cgroup: str) -> tuple[Path, Path]:
    """Return the files with a control group's limit and use of memory (v1, or v2)."""
    groups = Path("/sys/fs/cgroup")
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder = groups / "memory" / path.lstrip("/")
            return folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes"
    path = cgroup.splitlines()[-1].split(":", 2)[2]
    folder = groups / path.lstrip("/")
    return folder / "memory.max", folder / "memory.current"


def contained(container: str) -> list[Contained]:
    """List the processes of a container that live; none of a container that is none of ours."""
    found = []
    for folder in _folders():
        with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            if not in_container((folder / "cgroup").read_text(errors="replace"), container):
                continue
            stat = (folder / "stat").read_text(errors="replace")
            if stat.rpartition(")")[2].split()[0] in _DEAD:
                continue
            found.append(
                Contained(
                    pid=int(folder.name),
                    inner_pid=inner_pid((folder / "status").read_text(errors="replace")),
                    began_ticks=began_ticks(stat),
                    is_worker=_is_worker((folder / "environ").read_bytes()),
                )
            )
    return found


def in_container(cgroup: str, container: str) -> bool:
    """Return whether the text of a /proc/PID/cgroup names a container.

    Its id is the last part of the path, or stands in it as `cri-containerd-<id>.scope`.
    """
    return bool(container) and any(
        container in line.rpartition("/")[2] for line in cgroup.splitlines()
    )


def inner_pid(status: str) -> int:
    """Return the pid that a process has in its innermost namespace, from a /proc/PID/status."""
    line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-1])


def began_ticks(stat: str) -> int:
    """Return when a process began, in ticks since the boot, from a /proc/PID/stat."""
    return int(stat.rpartition(")")[2].split()[19])


def process_name(pod: str, first: Contained, one: Contained) -> str:
    """Name a process of a container as it names itself in the history, by `pod_life` and pid."""
    return f"{pod}@{first.began_ticks}:{one.inner_pid}"


def _folders() -> Iterator[Path]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            yield Path(entry.path)


def _is_worker(environ: bytes) -> bool:
    return any(
        entry.startswith(_WORKER) and not entry.startswith(_WORKER + _FILLER)
        for entry in environ.split(b"\0")
    )

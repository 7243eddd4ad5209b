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

__all__ = ["Contained", "began_ticks", "contained", "in_container", "inner_pid", "kubelet_of"]

_WORKER, _FILLER = b"ELASTICD_WORKER=", b"_"
_DEAD = "ZX"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contained:
    """One process of a container."""

    pid: int
    """As this machine sees it."""
    inner_pid: int
    """As it sees itself; 1: the container ends with it."""
    began_ticks: int
    is_worker: bool


def contained(container: str) -> list[Contained]:
    """List the processes of a container that live; none of a container that is none of ours."""
    found = []
    for folder in _folders():
        with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            if not in_container((folder / "cgroup").read_text(), container):
                continue
            stat = (folder / "stat").read_text()
            if stat.rpartition(")")[2].split()[0] in _DEAD:
                continue
            found.append(
                Contained(
                    pid=int(folder.name),
                    inner_pid=inner_pid((folder / "status").read_text()),
                    began_ticks=began_ticks(stat),
                    is_worker=_is_worker((folder / "environ").read_bytes()),
                )
            )
    return found


def in_container(cgroup: str, container: str) -> bool:
    """Whether the text of a /proc/PID/cgroup names a container.

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


def kubelet_of(node: str) -> list[int]:
    """Return the kubelet of a node and what waits for it; empty: it is not on this machine.

    A wrapper such as `nsenter` stops with the kubelet, and is not woken with it.
    """
    flag = f"--hostname-override={node}".encode()
    for folder in _folders():
        with suppress(OSError, ValueError, IndexError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if os.path.basename(words[0]) == b"kubelet" and flag in words:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                parent = Path("/proc", stat[1])
                is_wrapped = (parent / "comm").read_text().strip() == "nsenter"
                return [int(folder.name), *([int(parent.name)] if is_wrapped else [])]
    return []


def _folders() -> Iterator[Path]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            yield Path(entry.path)


def _is_worker(environ: bytes) -> bool:
    return any(
        entry.startswith(_WORKER) and not entry.startswith(_WORKER + _FILLER)
        for entry in environ.split(b"\0")
    )

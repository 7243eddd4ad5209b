"""Where a process runs: the properties that it has from its parent, and a fork of another process
has not.

A pool that is forked from a server must run where its agent runs. Agents that did not start the
server use it too. So each agent names its own surroundings, and the server refuses one with other
surroundings.
"""

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

import elasticd
import elasticd_agent
from elasticd_agent.pool.process.effective_user import child_gid, child_uid

__all__ = ["surroundings"]

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
_LIMITS = {
    getattr(resource, name): name for name in reversed(dir(resource)) if name.startswith("RLIMIT_")
}
"""The name of each limit, one for a number: RLIMIT_OFILE is the limit of files too."""
_PRIVILEGES = ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")


def surroundings() -> dict[str, str]:
    """Return each property by a name for people; leave out those that the kernel does not tell."""
    found = {
        "interpreter": sys.executable,
        "installation of elasticd": f"{elasticd.__file__} {elasticd_agent.__file__}",
        "version of elasticd": elasticd.__version__,
        "user": f"{_ids(os.getresuid(), child_uid())} {_ids(os.getresgid(), child_gid())} "
        f"{sorted(os.getgroups())}",
        "niceness": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "scheduling policy": str(os.sched_getscheduler(0)),
        "set of cores": str(sorted(os.sched_getaffinity(0))),
        "umask": _umask(),
    }
    for name in _NAMESPACES:
        with suppress(OSError):
            found[f"{name} namespace"] = os.readlink(f"/proc/self/ns/{name}")
    with suppress(OSError):
        root = os.stat("/")
        found["root folder"] = f"{root.st_dev} {root.st_ino}"
    with suppress(OSError):
        found["cgroup"] = Path("/proc/self/cgroup").read_text(errors="replace")
    with suppress(OSError):
        found["oom_score_adj"] = Path("/proc/self/oom_score_adj").read_text().strip()
    for limit, name in _LIMITS.items():
        soft, hard = resource.getrlimit(limit)
        # An agent raises its own limit of files; a pool gets the one that it began with.
        found[name] = str(hard if limit == resource.RLIMIT_NOFILE else (soft, hard))
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in _PRIVILEGES:
                found[name] = value.strip()
    return found


def _ids(own: tuple[int, int, int], child: int | None) -> tuple[int, ...]:
    """Return the ids of user or group that a child of this process gets."""
    return own if child is None else (child,) * 3


def _umask() -> str:
    """Read the umask from /proc: os.umask cannot read it without setting it, for all threads."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(errors="replace").splitlines():
            if line.startswith("Umask:"):
                return line.split()[1]
    return ""

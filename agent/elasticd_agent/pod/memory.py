"""The memory limit of this container or unit, and processes that the kernel killed because of it.

A process that was killed by SIGKILL cannot report the reason. The kernel counts the processes that
it kills for want of memory, before it sends the signal: a worker that ends by SIGKILL when that
number has grown is one of them. The count is of the whole container, so who asks first for a kill
gets it, and what was killed beside (a data loader's process, whose rank then raises) is not put
down to a later one. Where the kernel kills the whole container (memory.oom.group) nobody is left
here who could tell.
"""

import time
from collections.abc import Callable
from threading import Lock

from elasticd.telemetry.cgroup import (
    MemoryLimit,
    killed_together,
    memory_limit,
    oom_kill_count,
)
from elasticd.telemetry.log import get_logger

__all__ = ["SIGKILLED", "OomKills", "log_limit"]

SIGKILLED = -9
BESIDE_S = 5.0
"""Several that are killed at one moment are told one after the other, within this time."""

log = get_logger()


def log_limit() -> None:
    """Log what this node's workers and keepers may take together, where there is a limit."""
    limit = memory_limit()
    if limit is not None:
        log.info(
            "memory.limited",
            bytes=limit.size_bytes,
            path=str(limit.path),
            hint="workers and keepers together; a keeper holds two copies of each share of a "
            "state, and says in its own log how much that is",
        )
    path = killed_together()
    if path is not None:
        log.warning(
            "memory.killed_together",
            path=str(path),
            why="where memory is short here, the kernel kills this agent with all of its workers "
            "and keepers, not one process: the other nodes then say that this one was lost, and "
            "only Kubernetes that it was for memory. Set singleProcessOOMKill: true in the "
            "kubelet's configuration (Kubernetes 1.32 and later), or give the container more "
            "memory than its workers take.",
        )


class OomKills:
    """Kills of this container's processes for want of memory. Of any thread."""

    def __init__(
        self,
        count: Callable[[], int | None] = oom_kill_count,
        limit: Callable[[], MemoryLimit | None] = memory_limit,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count, self._limit, self._now_s = count, limit, now_s
        self._lock = Lock()
        self._seen = count() or 0
        self._unclaimed, self._unclaimed_until_s = 0, 0.0

    def sentence_of(self, code: int) -> str:
        """Say why a process ended that has just ended with this code; empty: not for memory.

        `code` is an exit code, or minus the number of a signal.
        """
        with self._lock:
            self._measure()
            is_killed = code == SIGKILLED
            if not is_killed:
                self._unclaimed = 0  # One of its own, like a data loader's: it raised for that.
            if not self._unclaimed:
                return ""
            self._unclaimed -= 1
        limit = self._limit()
        room = (
            f"the limit of its container is {limit.size_bytes / (1 << 30):.1f} GiB ({limit.path})"
            if limit is not None
            else "this machine has none left"
        )
        return f"Out of memory: the kernel killed this process for want of memory; {room}."

    def _measure(self) -> None:
        found = self._count() or 0
        now_s = self._now_s()
        if found > self._seen:
            log.warning("memory.oom_killed", processes=found - self._seen)
            self._unclaimed = found - self._seen
            self._unclaimed_until_s = now_s + BESIDE_S
        elif now_s >= self._unclaimed_until_s:
            self._unclaimed = 0
        self._seen = found

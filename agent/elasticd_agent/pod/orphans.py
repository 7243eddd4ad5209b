"""Ends the processes that a killed pool leaves behind, and that become the agent's children.

The pool is the guardian of its workers' subtrees. When it is killed itself, its workers die with it
(the kernel's parent-death signal), but the processes that they had started in sessions of their own
would live on. The agent, as the subreaper above the pool, inherits and kills these.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from elasticd.telemetry.log import get_logger
from elasticd_agent.pod.memory import OomKills
from elasticd_agent.pool.process.prctl import adopt_orphans
from elasticd_agent.pool.process.process_table import children_of
from elasticd_agent.pool.process.subtree import Subtree

__all__ = ["Children", "adopt_orphans"]

_ROUNDS = 20
_PAUSE_S = 0.01
_LOCK_TIMEOUT_S = 1.0
"""A process is started in milliseconds, unless its program lies on a disk that hangs."""

log = get_logger()


class Children:
    """The processes that an agent started itself: its pools and keepers. Any thread may use it.

    Every other child of the agent is an orphan. So no process may be started while orphans are
    looked for: it would be taken for an orphan before its number is known.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._pids: set[int] = set()
        self.oom_kills = OomKills()
        """Out-of-memory kills of these processes, and of all others in their container."""

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(self._pids)

    @contextmanager
    def unchanged(self) -> Iterator[frozenset[int] | None]:
        """Let none be started meanwhile; gives their numbers, None if one is being started."""
        if not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            yield self.pids
        finally:
            self._lock.release()

    def start(self, begin: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a process by `begin`, and count it as the agent's own until `forget` or `end`."""
        with self._lock:
            process = begin()
            self._pids.add(process.pid)
        return process

    def adopt(self, pid: int) -> None:
        """Count a process as the agent's own although a child of the agent has started it."""
        self._pids.add(pid)

    def forget(self, pid: int) -> None:
        """Remember that this process has ended."""
        self._pids.discard(pid)

    def end(self, pid: int) -> None:
        """Forget a pool that has ended, and kill and reap all processes that it left behind.

        Gives up after 0.2 s on a process that no signal ends; the process then stays counted, and
        is killed again at the next pool's end.
        """
        self.forget(pid)
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
            log.warning("orphans.left", hint="a process is being started; does a disk hang?")
            return
        try:
            self._end_orphans()
        finally:
            self._lock.release()

    def _end_orphans(self) -> None:
        subtree = Subtree()
        for _ in range(_ROUNDS):
            orphans = [pid for pid in children_of(os.getpid()) if pid not in self._pids]
            if not orphans:
                return
            for pid in orphans:
                subtree.kill(pid)
                _reap(pid)
            time.sleep(_PAUSE_S)
        log.warning("orphans.left", count=len(orphans))


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return

"""One worker as the pool sees it, from its start until none of its processes is left."""

import math
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field

from elasticd.channel.pool import Start
from elasticd.records.job import EntryKind
from elasticd_agent.pool.link import Link
from elasticd_agent.pool.process.process_table import mark_of
from elasticd_agent.pool.process.subtree import Subtree

__all__ = ["GIVE_UP_S", "Child"]

GIVE_UP_S = 10.0
"""A process in an uninterruptible call outlives SIGKILL; its worker is reported nonetheless."""


@dataclass(slots=True, kw_only=True)
class Child:
    start: Start
    pid: int
    report: Link
    """What the worker says itself: that it is up, could not start, or raised."""
    subtree: Subtree = field(default_factory=Subtree)
    has_answered: bool = False
    """Started or StartFailed was sent for it."""
    is_refused: bool = False
    """It was StartFailed, so nobody waits for its Exited."""
    code: int | None = None
    """Set once it is reaped; then its pid is no longer ours to signal."""
    kill_at_s: float | None = None
    give_up_at_s: float = math.inf
    """When to stop waiting for what no signal ends (a process stuck in the kernel)."""

    @property
    def name(self) -> str:
        return self.start.worker

    @property
    def is_dead(self) -> bool:
        return self.code is not None

    @property
    def is_ending(self) -> bool:
        """Return True if the worker is dead, or was told to end."""
        return self.is_dead or self.kill_at_s is not None or self.give_up_at_s < math.inf

    def terminate(self) -> None:
        """Ask the child to end, by SIGTERM.

        Only the process of a Python worker gets the signal: its DataLoader processes must live
        while its handler saves. A command gets the signal with its process group, as under
        torchrun: a shell that waits for its program would otherwise end and leave the program to
        SIGKILL.
        """
        with suppress(ProcessLookupError):
            if self.start.entry_kind is EntryKind.COMMAND:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGTERM)
                    return
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the child and all its descendants, by SIGKILL."""
        self.kill_at_s = None
        if not self.is_dead:
            self.subtree.kill(self.pid)
            self.expect_end()

    def expect_end(self) -> None:
        """Note that the pool can only wait for the end now, up to a limit."""
        self.give_up_at_s = min(self.give_up_at_s, time.monotonic() + GIVE_UP_S)

    def owns(self, pid: int, session: int) -> bool:
        """Return True if an orphan descends from this worker: by session, else by its environment's
        mark.
        """
        return session == self.pid or mark_of(pid) == self.name

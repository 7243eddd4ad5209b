"""Ends a process and all its descendants.

Killing a tree from the top races with the tree: a killed process loses its children to the
subreaper, and new forks are missed. So the whole tree is stopped first, from the top down, until a
pass finds nothing new; a stopped process does not fork. Then the whole tree is killed.
"""

import os
import signal
from contextlib import suppress

from elasticd_agent.pool.process.process_table import children_of, is_running, look_up

__all__ = ["Subtree"]

_PASS_LIMIT = 8
"""A tree that still grows after this many passes is ended in the next round of the sweep."""


class Subtree:
    """The processes that were once seen to descend from one worker."""

    def __init__(self) -> None:
        self._members: set[tuple[int, int]] = set()

    def kill(self, root: int, started: int | None = None) -> None:
        """Send SIGKILL to a process and its descendants; remember them for `is_gone`.

        Whoever is not its parent says when it started: its pid may be another process's by now.
        """
        found: dict[int, int] = {}
        for _ in range(_PASS_LIMIT):
            if not self._stop_new(root, started, found):
                break
        for pid, started in found.items():
            _send(pid, started, signal.SIGKILL)
        self._members.update(found.items())

    def is_gone(self) -> bool:
        """Return whether no killed process still runs (in a system call that no signal ends)."""
        self._members = {member for member in self._members if is_running(*member)}
        return not self._members

    @staticmethod
    def _stop_new(root: int, started: int | None, found: dict[int, int]) -> bool:
        """Stop descendants of `root` that were not stopped yet; return whether there were any."""
        is_new = False
        front = [root]
        while front:
            pid = front.pop()
            if pid not in found:
                process = look_up(pid)
                if process is None:
                    continue
                if pid == root and started not in (None, process.started):
                    continue
                is_new = True
                found[pid] = process.started
                _send(pid, process.started, signal.SIGSTOP)
            front.extend(children_of(pid))
        return is_new


def _send(pid: int, started: int, number: signal.Signals) -> None:
    process = look_up(pid)
    if process is not None and process.started == started:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)

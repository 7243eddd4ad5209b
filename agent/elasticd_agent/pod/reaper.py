"""Reaps processes that die after their parent, and for which no other code waits.

The agent is the subreaper of all that its pools start, and in a container often process 1: whatever
loses its parent becomes its child, and stays in the table of processes until somebody asks how it
ended. `wait` for any child would steal the ends of pools and keepers from those that wait for them;
so each is asked for by its number, and none of our own.

Rejected: a small init as process 1 (tini): it would end the container while keepers still save, and
what our subreaper adopts never gets to it.
"""

import os
import signal
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self

from elasticd_agent.pod.orphans import Children
from elasticd_agent.pool.process.process_table import children_of, look_up

__all__ = ["Reaper", "reap"]

AGAIN_S = 1.0
"""Until a second look: at the first one a process of ours was being started, or the kernel's list
left one out, as it may where another child is waited for while it is read."""


class Reaper:
    """Reaps at each SIGCHLD, on a thread of its own. Made and left on the main thread."""

    def __init__(self, children: Children) -> None:
        self._children = children
        # A signal handler may put into it in the middle of another put, unlike an Event.
        self._queue: SimpleQueue[bool] = SimpleQueue()
        self._thread = Thread(target=self._run, name="reaper", daemon=True)

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGCHLD, lambda *_: self._queue.put(True))
        self._thread.start()
        self._queue.put(True)  # What died before anybody listened.
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGCHLD, self._previous)
        self._queue.put(False)

    def _run(self) -> None:
        has_to_look_again = False
        while True:
            try:
                is_wanted = self._queue.get(timeout=AGAIN_S if has_to_look_again else None)
            except Empty:
                has_to_look_again = not reap(self._children)
                continue
            if not is_wanted:
                return
            reap(self._children)
            has_to_look_again = True


def reap(children: Children) -> bool:
    """Reap all zombies that the agent did not start itself; return False if that is unknown now."""
    with children.unchanged() as own:
        if own is None:
            return False
        session = os.getsid(0)
        for pid in children_of(os.getpid()):
            found = look_up(pid) if pid not in own else None
            # In our own session is what a thread of ours started and waits for (py-spy).
            if found is not None and found.state == "Z" and found.session != session:
                _reap(pid)
    return True


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return

"""A thread that writes the log, so that a hanging disk or reader delays nobody who logs.

If the thread that owns an agent waited for a disk, the node's lease would run out and the node
would be given up with all of its workers, for the sake of one line.
"""

import atexit
import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

__all__ = ["LINES_HELD", "LogThread"]

LINES_HELD = 10_000
"""How many lines wait, some megabytes. While nothing can be written, more are only counted."""
END_LIMIT_S = 1.0
"""How long a process waits at its end for lines that cannot be written."""


class LogThread:
    """Hands lines to `write` in their order; any thread may put one."""

    def __init__(self, write: Callable[[str, int], None]) -> None:
        """`write` takes a line, and how many lines before it were lost; it must not raise."""
        self._write = write
        self._lines: deque[tuple[str, int]] = deque()
        self._lost = 0
        """How many lines were lost since the last one that was taken."""
        self._is_writing = False
        self._changed = Condition()
        Thread(target=self._run, name="elasticd-log", daemon=True).start()
        atexit.register(self.flush, END_LIMIT_S)

    def put(self, line: str) -> None:
        """Hand a line over and return at once, whatever happens to it."""
        with self._changed:
            if len(self._lines) >= LINES_HELD:
                self._lost += 1
                return
            self._lines.append((line, self._lost))
            self._lost = 0
            self._changed.notify_all()

    def flush(self, limit_s: float) -> bool:
        """Wait until all lines are written; return False if they were not within the limit."""
        until_s = time.monotonic() + limit_s
        with self._changed:
            while self._lines or self._is_writing:
                if not self._changed.wait(until_s - time.monotonic()):
                    return False
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                while not self._lines:
                    self._changed.wait()
                line, lost_before = self._lines.popleft()
                self._is_writing = True
            self._write(line, lost_before)

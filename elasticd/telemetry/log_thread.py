"""A thread that writes the log, so that a hanging disk or reader delays no thread that logs.

If the thread that owns an agent waited for a disk, the node's lease would expire and the node would
be lost with all of its workers, because of one line.
"""

import atexit
import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

__all__ = ["LINES_HELD", "LogThread"]

LINES_HELD = 10_000
"""The number of lines that may wait, some megabytes. If no line can be written, further lines are
only counted."""
END_LIMIT_S = 1.0
"""The time in seconds that a process waits at its end for lines that cannot be written."""


class LogThread:
    """Passes lines to `write` in their order; any thread may put a line."""

    def __init__(self, write: Callable[[str, int], None]) -> None:
        """`write` takes a line, and the number of lost lines before it; it must not raise."""
        self._write = write
        self._lines: deque[tuple[str, int]] = deque()
        self._lost = 0
        """The number of lines that were lost since the last line that was accepted."""
        self._is_writing = False
        self._changed = Condition()
        Thread(target=self._run, name="elasticd-log", daemon=True).start()
        atexit.register(self.flush, END_LIMIT_S)

    def put(self, line: str) -> None:
        """Queue a line and return at once; if the queue is full, the line is lost."""
        with self._changed:
            if len(self._lines) >= LINES_HELD:
                self._lost += 1
                return
            self._lines.append((line, self._lost))
            self._lost = 0
            self._changed.notify_all()

    def flush(self, limit_s: float) -> bool:
        """Wait until all lines are written; return False if the time limit passes first."""
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

"""The newest lines of the log, kept in memory, so that they can be asked for if nobody kept the
file.
"""

from collections import deque
from threading import Lock

__all__ = ["LogRing"]

LINE_LIMIT = 8_192
"""The most characters of a line; a traceback has some thousands."""
ALL_LIMIT = 2 << 20
"""The most characters of all lines, whatever their number."""


class LogRing:
    """Keeps at most so many lines; any thread may add one, and read them."""

    def __init__(self, count: int) -> None:
        """`count` is how many lines are kept; 0: none."""
        self._count = count
        self._lines: deque[str] = deque()
        self._size = 0
        self._lock = Lock()

    def add(self, line: str) -> None:
        """Keep a line, and drop the oldest if there are too many."""
        if not self._count:
            return
        line = line[:LINE_LIMIT]
        with self._lock:
            self._lines.append(line)
            self._size += len(line)
            while len(self._lines) > self._count or self._size > ALL_LIMIT:
                self._size -= len(self._lines.popleft())

    def lines(self) -> list[str]:
        """Return the kept lines, the oldest first."""
        with self._lock:
            return list(self._lines)

"""The newest lines of the log, kept in memory.

An agent sends them to a reader if nobody kept the log's file.
"""

from collections import deque
from threading import Lock

__all__ = ["LogRing"]

LINE_LIMIT = 8_192
"""The largest number of characters of a line; a traceback has some thousands."""
ALL_LIMIT = 2 << 20
"""The largest number of characters of all lines together."""


class LogRing:
    """Keeps the newest lines; any thread may add and read lines."""

    def __init__(self, count: int) -> None:
        """`count` is the number of lines that are kept; 0 for none."""
        self._count = count
        self._lines: deque[str] = deque()
        self._size = 0
        self._lock = Lock()

    def add(self, line: str) -> None:
        """Keep a line, and drop the oldest lines if there are too many."""
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

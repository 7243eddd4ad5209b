"""How long to wait before the next try: twice as long each time, and never the same for all
clients.
"""

import random
from collections.abc import Callable

__all__ = ["Backoff"]

FIRST_S, MOST_S = 0.25, 30.0


class Backoff:
    """Counts the tries that failed in a row."""

    def __init__(
        self,
        first_s: float = FIRST_S,
        most_s: float = MOST_S,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_s, self._most_s, self._draw = first_s, most_s, draw
        self._next_s = first_s

    def next_s(self, at_least_s: float = 0.0) -> float:
        """Return how long to wait, from half to all of what is due; `at_least_s` is Retry-After.

        Clients that were told the same time would all come back together, so each waits a bit
        longer.
        """
        due_s, self._next_s = self._next_s, min(2.0 * self._next_s, self._most_s)
        return at_least_s + self._draw(due_s / 2, due_s)

    def reset(self) -> None:
        """Take note of a success: the next failure is a first one."""
        self._next_s = self._first_s

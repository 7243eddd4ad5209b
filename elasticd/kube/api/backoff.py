"""The wait before the next try: it doubles after each failure, and has a random part, so that
clients do not all come back at the same time.
"""

import random
from collections.abc import Callable

__all__ = ["Backoff"]

FIRST_S, MOST_S = 0.25, 30.0


class Backoff:
    """Counts the failures in a row, and returns the wait before the next try."""

    def __init__(
        self,
        first_s: float = FIRST_S,
        most_s: float = MOST_S,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_s, self._most_s, self._draw = first_s, most_s, draw
        self._next_s = first_s

    def next_s(self, at_least_s: float = 0.0) -> float:
        """Return the seconds to wait: `at_least_s`, and a random part between half of the present
        wait and the whole of it.

        `at_least_s` is the server's Retry-After. The server gives the same Retry-After to all
        clients, and they would all come back together, so each client waits a little longer.
        """
        due_s, self._next_s = self._next_s, min(2.0 * self._next_s, self._most_s)
        return at_least_s + self._draw(due_s / 2, due_s)

    def reset(self) -> None:
        """Forget the failures in a row, because a try succeeded."""
        self._next_s = self._first_s

"""Keeps successive scrapes of counters, and computes their rates. Pure: times are given.

As in Prometheus, a counter that fell started again at 0, and the first value of a counter is no
rise. Unlike Prometheus, nothing is extrapolated to the ends of the window.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CounterHistory"]

ROUNDS_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    at_s: float
    values: Mapping[str, float]
    """The value of each node."""


class CounterHistory:
    """The history of one counter on all nodes."""

    def __init__(self, window_s: float) -> None:
        """`window_s` is the time in seconds for which scrapes are kept."""
        self._window_s = window_s
        self._rounds: deque[_Round] = deque(maxlen=ROUNDS_LIMIT)

    def add(self, at_s: float, values: Mapping[str, float]) -> None:
        """Add one scrape of all nodes; `at_s` never goes back."""
        self._rounds.append(_Round(at_s=at_s, values=dict(values)))
        # The newest scrape that is as old as the window stays, so that a whole window is covered.
        while len(self._rounds) > 2 and self._rounds[1].at_s <= at_s - self._window_s:
            self._rounds.popleft()

    def rate(self) -> float | None:
        """Return the sum over all nodes, per second; None if there is only one scrape."""
        if len(self._rounds) < 2:
            return None
        seconds = self._rounds[-1].at_s - self._rounds[0].at_s
        if seconds <= 0:
            return None
        last: dict[str, float] = {}
        rose = 0.0
        for each in self._rounds:
            for node, value in each.values.items():
                before = last.get(node, value)
                rose += value - before if value >= before else value
            last.update(each.values)
        return rose / seconds

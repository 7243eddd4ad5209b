"""Virtual time: a heap of what happens next."""

import heapq
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Calls functions in the order of their times; ties in the order of their booking."""

    def __init__(self) -> None:
        self.now_s = 100.0
        """Not 0: a state that forgot to set a time would go unnoticed there."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        self.at(self.now_s + delay_s, call)

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._count, call))

    def step(self, until_s: float) -> bool:
        """Do the next thing; False if there is none before `until_s`."""
        if not self._heap or self._heap[0][0] > until_s:
            self.now_s = until_s
            return False
        self.now_s, _, call = heapq.heappop(self._heap)
        call()
        return True

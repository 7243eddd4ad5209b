"""How much of a processor a server may spend on what it is asked, by all who ask together."""

import threading
import time

__all__ = ["CpuShare"]

BURST_S = 5.0
"""What nobody asked for in so many seconds may be spent at once: a page that needs many answers is
not slowed down."""
DEBT_MOST_S = 5.0
"""Nobody waits for longer, whatever the answer before did cost: Prometheus gives a scrape 10 s."""


class CpuShare:
    """A budget that fills with time; who overdraws it waits."""

    def __init__(self, share: float) -> None:
        """`share`: of one processor, above 0 and at most 1."""
        self._share = share
        self._lock = threading.Lock()
        self._paid_until_s = -BURST_S

    def spend(self, cpu_s: float) -> float:
        """Take in the processor time of an answer; return for how long to wait before the next."""
        now_s = time.monotonic()
        with self._lock:
            paid_until_s = max(self._paid_until_s, now_s - BURST_S) + cpu_s / self._share
            self._paid_until_s = min(paid_until_s, now_s + DEBT_MOST_S)
            return max(0.0, self._paid_until_s - now_s)

    def owed_s(self) -> float:
        """Return for how long the next answer has to wait."""
        with self._lock:
            return max(0.0, self._paid_until_s - time.monotonic())

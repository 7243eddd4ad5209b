"""Limits how much CPU time a server spends on all its answers together."""

import threading
import time

__all__ = ["CpuShare"]

BURST_S = 5.0
"""Unused time of this many seconds may be spent at once, so that a page that needs many answers is
not slowed down."""
DEBT_MOST_S = 5.0
"""The longest wait, whatever the last answer cost: Prometheus gives a scrape 10 s."""


class CpuShare:
    """A budget that fills with time; a request that overdraws it waits."""

    def __init__(self, share: float) -> None:
        """`share` is the part of one CPU, above 0 and at most 1."""
        self._share = share
        self._lock = threading.Lock()
        self._paid_until_s = -BURST_S

    def spend(self, cpu_s: float) -> float:
        """Take in the CPU time of an answer; return how long to wait before the next."""
        now_s = time.monotonic()
        with self._lock:
            paid_until_s = max(self._paid_until_s, now_s - BURST_S) + cpu_s / self._share
            self._paid_until_s = min(paid_until_s, now_s + DEBT_MOST_S)
            return max(0.0, self._paid_until_s - now_s)

    def owed_s(self) -> float:
        """Return for how long the next answer has to wait."""
        with self._lock:
            return max(0.0, self._paid_until_s - time.monotonic())

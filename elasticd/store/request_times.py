"""How long calls to etcd took, counted in buckets."""

from bisect import bisect_left
from threading import Lock

__all__ = ["BOUNDS_S", "RequestTimes"]

BOUNDS_S = (0.005, 0.025, 0.1, 0.5, 2.5)
"""The bounds of the buckets: an idle etcd answers within the first, a busy one within the third;
behind the last one a call has tried several members, and the lease of a node is at stake."""


class RequestTimes:
    """A histogram; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, took_s: float) -> None:
        """Count one call, whether it succeeded or not."""
        with self._lock:
            self._counts[bisect_left(BOUNDS_S, took_s)] += 1
            self._sum_s += took_s

    def read(self) -> tuple[tuple[int, ...], float]:
        """Return the calls in each bucket, the last one without a bound, and the sum of seconds."""
        with self._lock:
            return tuple(self._counts), self._sum_s

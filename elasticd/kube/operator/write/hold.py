"""Delays the next try after a failure: of one action, or of all actions on one server."""

import time
from collections.abc import Callable

from elasticd.errors import ElasticdError
from elasticd.kube.api.backoff import Backoff
from elasticd.kube.api.failure import Busy

__all__ = ["Holds"]

FIRST_S, MOST_S = 0.5, 60.0
LIMIT = 4096
"""The limit for the number of failures that are remembered; beyond it all are forgotten at once."""


class Holds:
    """The delays after failures, by a name for what was tried. One thread uses it."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        backoff: Callable[[], Backoff] = lambda: Backoff(FIRST_S, MOST_S),
    ) -> None:
        self._now_s, self._backoff = now_s, backoff
        self._held: dict[str, tuple[float, str, Backoff]] = {}

    def is_held(self, what: str) -> bool:
        """Return whether it is too soon to try `what` again."""
        until_s, _, _ = self._held.get(what, (0.0, "", None))
        return self._now_s() < until_s

    def failed(self, what: str, why: str, at_least_s: float = 0.0) -> bool:
        """Delay the next try of `what`, longer than the last time; return whether `why` is new."""
        if len(self._held) >= LIMIT:
            self._held.clear()
        _, before, backoff = self._held.get(what, (0.0, "", self._backoff()))
        self._held[what] = self._now_s() + backoff.next_s(at_least_s), why, backoff
        return why != before

    def refused(self, what: str, exc: ElasticdError) -> bool:
        """Delay the next try as `failed` does, and for as long as the API server asks for."""
        at_least_s = exc.retry_after_s if isinstance(exc, Busy) else 0.0
        return self.failed(what, str(exc), at_least_s)

    def worked(self, what: str) -> bool:
        """Forget that `what` failed; return whether there was a failure."""
        return self._held.pop(what, None) is not None

    def next_s(self) -> float | None:
        """Return in how many seconds the first delay ends; None if nothing is delayed.

        An action whose delay is over is tried in each evaluation, and needs no wake-up of its own.
        """
        now_s = self._now_s()
        left = [until_s - now_s for until_s, _, _ in self._held.values() if until_s > now_s]
        return min(left, default=None)

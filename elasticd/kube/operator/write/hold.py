"""Keeps what failed from being tried again at once: an action on one thing, or all on
one server.
"""

import time
from collections.abc import Callable

from elasticd.kube.api.backoff import Backoff

__all__ = ["Holds"]

FIRST_S, MOST_S = 0.5, 60.0
LIMIT = 4096
"""How many things are remembered; beyond that everything is forgotten at once."""


class Holds:
    """What is held, by a word for what was tried. One thread uses it."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        backoff: Callable[[], Backoff] = lambda: Backoff(FIRST_S, MOST_S),
    ) -> None:
        self._now_s, self._backoff = now_s, backoff
        self._held: dict[str, tuple[float, str, Backoff]] = {}

    def is_held(self, what: str) -> bool:
        """Return whether it is too soon to try that."""
        until_s, _, _ = self._held.get(what, (0.0, "", None))
        return self._now_s() < until_s

    def failed(self, what: str, why: str, at_least_s: float = 0.0) -> bool:
        """Hold `what` for longer than the last time; return whether the failure is a new one."""
        if len(self._held) >= LIMIT:
            self._held.clear()
        _, before, backoff = self._held.get(what, (0.0, "", self._backoff()))
        self._held[what] = self._now_s() + backoff.next_s(at_least_s), why, backoff
        return why != before

    def worked(self, what: str) -> bool:
        """Forget that `what` failed; return whether it had."""
        return self._held.pop(what, None) is not None

    def next_s(self) -> float | None:
        """Return in how many seconds the first of them may be tried again; None if nothing is held.

        What is not held any more is tried in each look at everything, and needs no wake-up of its
        own.
        """
        now_s = self._now_s()
        left = [until_s - now_s for until_s, _, _ in self._held.values() if until_s > now_s]
        return min(left, default=None)

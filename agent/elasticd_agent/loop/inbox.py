"""The one bounded queue between the feeders and the thread that owns the state."""

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import TypeAlias, TypeVar

from elasticd.telemetry.log import get_logger

__all__ = ["Inbox", "Item"]

T = TypeVar("T")
Item: TypeAlias = Callable[[], None]
"""What the owner shall do next: a bound call with its facts. Runs on the owner's thread."""

log = get_logger()

LIMIT = 100_000
"""Events, not bytes: a list of 5,000 members is one. Reached only if the owner is stopped."""
WAIT_S = 1.0
"""How long a feeder waits for room. It may hold a lock that the owner needs to go on."""


class Inbox:
    """Feeders put, the owner takes. A full inbox makes feeders slow, never the owner itself.

    SimpleQueue, because a signal handler may put on the very thread that is taking.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._owner = get_ident()
        self._taken_s: float | None = None

    def put(self, item: Item) -> None:
        until_s = time.monotonic() + WAIT_S
        while self._queue.qsize() >= LIMIT and get_ident() != self._owner:
            if time.monotonic() >= until_s:
                break
            time.sleep(0.01)
        self._queue.put(item)

    def ask(self, question: Callable[[], T], timeout_s: float) -> T | None:
        """Have the owner answer a question; None if the time ran out. For any other thread.

        The questions are for people: a bug in an answer must not end the agent.
        """
        told: SimpleQueue[T | None] = SimpleQueue()

        def answer() -> None:
            try:
                told.put(question())
            except Exception:
                log.exception("question.crashed")
                told.put(None)

        self.put(answer)
        try:
            return told.get(timeout=timeout_s)
        except Empty:
            return None

    def take(self, timeout_s: float | None) -> Item | None:
        """Return the next item, or None if none came in time."""
        self._taken_s = None
        try:
            return self._take(timeout_s)
        finally:
            self._taken_s = time.monotonic()

    @property
    def busy_s(self) -> float:
        """Return how long the owner has been at what it took last; 0 while it waits for more."""
        taken_s = self._taken_s
        return 0.0 if taken_s is None else time.monotonic() - taken_s

    def _take(self, timeout_s: float | None) -> Item | None:
        try:
            if timeout_s is not None and timeout_s <= 0:
                return self._queue.get_nowait()
            return self._queue.get(timeout=timeout_s)
        except Empty:
            return None

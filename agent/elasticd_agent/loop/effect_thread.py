"""The thread that talks to etcd for the owner, so that the owner never waits for the network.

One thread: writes of one agent keep their order, and a member record can not overtake the world
that it follows.
"""

import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from elasticd.errors import ElasticdError, Unavailable
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.failed_writes import FailedWrites

__all__ = ["EffectThread", "later"]

T = TypeVar("T")
_LIMIT = 10_000

log = get_logger()


class EffectThread:
    """Carries effects out one after the other; each answers exactly once, also when it fails."""

    def __init__(self) -> None:
        _alarm.open()
        self.failed_writes = FailedWrites()
        self._effects: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="effect_thread", daemon=True)
        self._thread.start()

    def send(
        self,
        effect: Callable[[], T],
        answer: Callable[[T], None],
        failed: Callable[[ElasticdError], None],
    ) -> None:
        """Call `effect` on the thread of effects, then `answer` or `failed` there."""
        if self._effects.qsize() >= _LIMIT:
            failed(Unavailable("Too many calls to etcd are waiting."))
            return
        self._effects.put(lambda: _carry_out(effect, answer, failed))

    def close(self, timeout_s: float) -> None:
        """Finish what is queued, for at most this long."""
        self._effects.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (effect := self._effects.get()) is not None:
            try:
                effect()
            except Exception:
                # An answer raised it. The lease has a thread of its own: without this one a node
                # would look well for ever, and never write again.
                log.exception("effect.crashed")


class _Alarm:
    """One thread for all delayed calls, which are quick: a new thread for each might not start.

    Retries would then never run, while the lease makes the node look healthy.
    """

    def __init__(self) -> None:
        self._new: SimpleQueue[tuple[float, int, Callable[[], object]]] = SimpleQueue()
        self._numbers, self._lock = count(), Lock()
        self._thread: Thread | None = None

    def open(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._thread is None:
                thread = Thread(target=self._run, name="alarm", daemon=True)
                thread.start()
                self._thread = thread

    def add(self, pause_s: float, call: Callable[[], object]) -> None:
        self.open()
        self._new.put((time.monotonic() + pause_s, next(self._numbers), call))

    def _run(self) -> None:
        due: list[tuple[float, int, Callable[[], object]]] = []
        while True:
            try:
                wait_s = max(0.0, due[0][0] - time.monotonic()) if due else None
                heappush(due, self._new.get(timeout=wait_s))
            except Empty:
                _, _, call = heappop(due)
                try:
                    call()
                except Exception:
                    log.exception("alarm.crashed")


_alarm = _Alarm()


def later(pause_s: float, call: Callable[[], object]) -> None:
    """Call a function after a pause, on a thread that all such calls share.

    If the process ends before, the function is not called.
    """
    _alarm.add(pause_s, call)


def _carry_out(
    effect: Callable[[], T],
    answer: Callable[[T], None],
    failed: Callable[[ElasticdError], None],
) -> None:
    try:
        result = effect()
    except ElasticdError as exc:
        failed(exc)
    except Exception as exc:
        # Our own bug, but the owner waits for an answer; without one the job would stand still.
        log.exception("effect.crashed")
        failed(Unavailable(f"An internal error: {exc!r}"))
    else:
        answer(result)

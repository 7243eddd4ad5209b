"""The thread that talks to etcd for the owner, so that the owner never waits for the network.

One thread: writes of one agent keep their order, and a member record can not overtake the world
that it follows.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread, Timer
from typing import TypeVar

from elasticd.errors import ElasticdError, Unavailable
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.failed_writes import FailedWrites

__all__ = ["Courier", "later"]

T = TypeVar("T")
_LIMIT = 10_000

log = get_logger()


class Courier:
    """Carries errands out one after the other; each answers exactly once, also when it fails."""

    def __init__(self) -> None:
        self.failed_writes = FailedWrites()
        self._errands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="courier", daemon=True)
        self._thread.start()

    def send(
        self,
        errand: Callable[[], T],
        answer: Callable[[T], None],
        failed: Callable[[ElasticdError], None],
    ) -> None:
        """Call `errand` on the courier's thread, then `answer` or `failed` there."""
        if self._errands.qsize() >= _LIMIT:
            failed(Unavailable("Too many calls to etcd are waiting."))
            return
        self._errands.put(lambda: _carry_out(errand, answer, failed))

    def close(self, timeout_s: float) -> None:
        """Finish what is queued, for at most this long."""
        self._errands.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                errand()
            except Exception:
                # Of an answer. The lease has a thread of its own: without this one a node would
                # look well for ever, and never write again.
                log.exception("errand.crashed")


def later(pause_s: float, call: Callable[[], object]) -> None:
    """Call it after a pause, on a thread of its own; forgotten if the process ends before."""
    timer = Timer(pause_s, call)
    timer.daemon = True
    timer.start()


def _carry_out(
    errand: Callable[[], T],
    answer: Callable[[T], None],
    failed: Callable[[ElasticdError], None],
) -> None:
    try:
        result = errand()
    except ElasticdError as exc:
        failed(exc)
    except Exception as exc:
        # Our own bug, but the owner waits for an answer; without one the job would stand still.
        log.exception("errand.crashed")
        failed(Unavailable(f"An internal error: {exc!r}"))
    else:
        answer(result)

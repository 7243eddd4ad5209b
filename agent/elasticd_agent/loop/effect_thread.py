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

__all__ = ["EffectThread", "later"]

T = TypeVar("T")
_LIMIT = 10_000

log = get_logger()


class EffectThread:
    """Carries effects out one after the other; each answers exactly once, also when it fails."""

    def __init__(self) -> None:
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


def later(pause_s: float, call: Callable[[], object]) -> None:
    """Call it after a pause, on a thread of its own; forgotten if the process ends before."""
    timer = Timer(pause_s, call)
    timer.daemon = True
    timer.start()


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

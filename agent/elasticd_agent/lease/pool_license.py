"""The license (a watchdog timeout) of a job's workers: the pool enforces it, else the agent does.

The pool ends its workers when the license is over, also while the agent stands still. If it is the
pool that stands still (a SIGSTOP, a debugger), nobody else does so, and other nodes begin a world
without this one: so the agent looks some seconds later, and kills the pool with all its processes.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from elasticd.channel.pool import License
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s
from elasticd_agent.loop.effect_thread import later
from elasticd_agent.pool.process.subtree import Subtree

__all__ = ["PoolLicense"]

OVERDUE_S = 2.0
"""How long after the license's end workers may still be there. With the second look it is less than
the margin of five seconds that the other nodes leave."""
SECOND_LOOK_S = 1.0
"""An agent that stood still itself reads in this time that its workers have ended."""
LOOK_MOST_S = 3600.0
"""The longest pause between two looks: the limit may be longer than what a timer takes."""

log = get_logger()


class PoolProcess(Protocol):
    """The pool's process, as the system knows it."""

    @property
    def pid(self) -> int: ...


class LicensedPool(Protocol):
    """The pool that is told the license: a `WarmPool`."""

    @property
    def process(self) -> PoolProcess | None: ...

    def send(self, message: License) -> None: ...


class PoolLicense:
    """Tell the pool until when workers may run. The agent's main thread calls it."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        pool: Callable[[], LicensedPool],
        workers: Collection[str],
    ) -> None:
        """`post` brings a call to the main thread; `workers` are those that have not ended."""
        self._post, self._pool, self._workers = post, pool, workers
        self._until_s: float | None = None
        self._is_listening = self._is_closed = False
        self._look_at_s: float | None = None
        """When the agent looks next; None if it does not."""

    def allow_until(self, until_s: float) -> None:
        """Let workers run until then, as `now_s` counts; it may be earlier than was told before."""
        self._until_s = until_s
        if self._is_listening:
            self._pool().send(License(until_s=until_s))
        self._look_at(until_s + OVERDUE_S)

    def on_pool_ready(self) -> None:
        """Tell a pool that reads its messages from now on; before, they would fill the socket."""
        self._is_listening = True
        if self._until_s is not None:
            self._pool().send(License(until_s=self._until_s))

    def on_pool_exit(self) -> None:
        self._is_listening = False

    def close(self) -> None:
        """Look no more. Any thread may call this."""
        self._is_closed = True

    def _look_at(self, at_s: float, *, is_second: bool = False) -> None:
        if self._look_at_s is None or at_s < self._look_at_s:
            self._look_at_s = at_s
            pause_s = min(max(0.0, at_s - now_s()), LOOK_MOST_S)
            later(pause_s, lambda: self._post(lambda: self._look(at_s, is_second)))

    def _look(self, at_s: float, is_second: bool) -> None:
        if at_s != self._look_at_s:
            return  # The license was cut, and an earlier look set in its place.
        self._look_at_s = None
        if self._is_closed or self._until_s is None:
            return
        overdue_s = self._until_s + OVERDUE_S
        if now_s() < overdue_s:  # It was renewed meanwhile.
            self._look_at(overdue_s)
        elif self._is_listening and self._workers:
            process = self._pool().process
            if not is_second:
                self._look_at(now_s() + SECOND_LOOK_S, is_second=True)
            elif process is not None:
                log.error("pool.killed", why="its license is over, and it did not end its workers")
                Subtree().kill(process.pid)

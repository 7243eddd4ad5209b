"""The ranks of a group agree after which step they leave it for a planned change: the same for all.

Each rank hears of the change when its agent does, somewhere in the middle of a step. It writes into
the generation's store the first step after which it can leave, and goes on. The last rank that does
so writes the latest of all, and there all ranks leave. Until that is known no rank passes the step
that it named, so none is ever ahead of the answer, and nothing that was begun is thrown away.
Without a change nothing of this costs a step anything.
"""

import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any

from elasticd.train.session.ports import AbortableGroup

__all__ = ["Departure", "agree"]

LIMIT_S = 5.0
"""How long a rank waits for the others' word. They need no more than to hear of the change, in a
thread of their own; a store that is silent gives no other sign."""

CONNECT_S = 2.0
"""To a store that was reached before."""

_POLL_S = 0.001
"""Others hear of a change at about the same time; it takes this long to ask the store."""
_LAST_POLL_S, _LAST_POLL_S_PER_RANK = 0.01, 0.0005
"""A thousand ranks may ask one store."""

_COUNT, _ANSWER = "departure", "departure/after"


def agree(
    store: Any, rank: int, size: int, *, least: int, is_over: Callable[[], bool]
) -> int | None:
    """Return the step after which all ranks leave, at least `least`; None: it is over without one.

    Called once by each rank in a generation. Raises what the store raises.
    """
    store.set(f"{_COUNT}/{rank}", str(least))
    if store.add(_COUNT, 1) == size:
        named = store.multi_get([f"{_COUNT}/{each}" for each in range(size)])
        store.set(_ANSWER, str(max(int(one) for one in named)))
    pause_s = _POLL_S
    while True:
        # Asked in this order: who leaves as agreed does so after the answer is there.
        was_over = is_over()
        if store.check([_ANSWER]):
            return int(store.get(_ANSWER))
        if was_over:
            return None
        time.sleep(pause_s)
        pause_s = min(_LAST_POLL_S + _LAST_POLL_S_PER_RANK * size, 1.3 * pause_s)


class Departure:
    """What this rank knows of it. Created with the lock of `changed` held, read with or without."""

    def __init__(self, group: AbortableGroup, changed: Condition, *, least: int) -> None:
        self.least = least
        """The first step that this rank can leave after; it goes no further before all agreed."""
        self.last: int | None = None
        """After which it leaves: what all agreed on, or, if that cannot be had, `least`."""
        self.is_agreed = False
        self._group = group
        self._changed = changed
        self._is_over = False
        # A store that does not answer must not keep the session from hearing the next message.
        Thread(target=self._agree, name="elasticd-departure", daemon=True).start()

    def allows(self, step: int) -> bool:
        """True if this rank need not wait for the others' word after this step."""
        return self.last is not None or step < self.least

    def is_due(self, step: int) -> bool:
        return self.last is not None and step >= self.last

    def wait(self, step: int, is_urgent: Callable[[], bool]) -> None:
        """Return when this rank may pass this step, or is to leave; the lock is held."""
        self._changed.wait_for(lambda: is_urgent() or self.allows(step), LIMIT_S)
        if not is_urgent() and not self.allows(step):
            self._give_up()

    def end(self) -> None:
        """The group was left."""
        self._is_over = True

    def _give_up(self) -> None:
        """Leave without the others' word: that costs a step in flight and never a commit."""
        self.last = self.least

    def _agree(self) -> None:
        try:
            last = self._group.last_step(self.least, lambda: self._is_over)
        except Exception:
            last = None  # The store is gone, and so is the world; what broke it is told elsewhere.
        with self._changed:
            if self.last is None and last is not None:
                self.last, self.is_agreed = last, True
            elif self.last is None:
                self._give_up()
            self._changed.notify_all()

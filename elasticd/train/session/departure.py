"""How the ranks of a group agree on the step after which all leave it for a planned change.

Each rank learns of the change when its agent does, in the middle of some step. It writes the first
step after which it can leave into the generation's store, and goes on. The last rank to write also
writes the latest of these steps, after which all ranks leave. Until a rank knows that answer, it
does not pass the step that it named. So no rank is ever ahead of the answer, and no work is thrown
away. Without a change a step costs nothing for this.
"""

import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any

from elasticd.train.session.ports import AbortableGroup

__all__ = ["Departure", "agree"]

LIMIT_S = 5.0
"""How long a rank waits for the answer. The others hear of the change in a thread of their own,
which takes less; a store that is silent gives no other sign."""

CONNECT_S = 2.0
"""How long to try to connect to a store that was reached before."""

_POLL_S = 0.001
"""The first pause between two questions to the store; one question takes about as long."""
_LAST_POLL_S, _LAST_POLL_S_PER_RANK = 0.01, 0.0005
"""The longest pause, which grows with the world: a thousand ranks may ask one store."""

_COUNT, _ANSWER = "departure", "departure/after"


def agree(
    store: Any, rank: int, size: int, *, least: int, is_over: Callable[[], bool]
) -> int | None:
    """Return the step after which all ranks leave; each rank calls this once in a generation.

    Args:
        store: the generation's store.
        least: the first step after which this rank can leave; the answer is not below it.
        is_over: returns whether the group was left without an answer; then None is returned.

    Raises what the store raises when it cannot be reached.
    """
    store.set(f"{_COUNT}/{rank}", str(least))
    if store.add(_COUNT, 1) == size:
        named = store.multi_get([f"{_COUNT}/{each}" for each in range(size)])
        store.set(_ANSWER, str(max(int(one) for one in named)))
    pause_s = _POLL_S
    while True:
        # The order matters: a rank that leaves as agreed does so after the answer is there.
        was_over = is_over()
        if store.check([_ANSWER]):
            return int(store.get(_ANSWER))
        if was_over:
            return None
        time.sleep(pause_s)
        pause_s = min(_LAST_POLL_S + _LAST_POLL_S_PER_RANK * size, 1.3 * pause_s)


class Departure:
    """This rank's view of the agreement.

    The session that makes it holds the lock of `changed`; readers need no lock.
    """

    def __init__(self, group: AbortableGroup, changed: Condition, *, least: int) -> None:
        self.least = least
        """The first step after which this rank can leave; it waits there until all have agreed."""
        self.last: int | None = None
        """The step after which this rank leaves: the agreed one, or else `least`."""
        self.is_agreed = False
        self._group = group
        self._changed = changed
        self._is_over = False
        # A store that does not answer must not keep the session from hearing the next message.
        Thread(target=self._agree, name="elasticd-departure", daemon=True).start()

    def allows(self, step: int) -> bool:
        """Return whether this rank may go on after this step without waiting for the agreement."""
        return self.last is not None or step < self.least

    def is_due(self, step: int) -> bool:
        """Return whether this rank is to leave after this step."""
        return self.last is not None and step >= self.last

    def wait(self, step: int, is_urgent: Callable[[], bool]) -> None:
        """Return once this rank may pass this step, or is to leave; the caller holds the lock."""
        self._changed.wait_for(lambda: is_urgent() or self.allows(step), LIMIT_S)
        if not is_urgent() and not self.allows(step):
            self._give_up()

    def end(self) -> None:
        """Note that the group was left, so that nobody waits for the agreement any more."""
        self._is_over = True

    def _give_up(self) -> None:
        """Leave without an agreement, which costs a step under way and never a commit."""
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

"""Waits for keys of a generation's store as long as the generation lasts.

It asks the store again and again: the store's own `wait` cannot be interrupted by a planned change,
and writes two lines to the worker's log at each timeout.
"""

import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["await_keys"]

_FIRST_PAUSE_S, _LAST_PAUSE_S, _GROWTH = 0.002, 0.5, 1.3
"""Others are mostly there already, or a moment later; a thousand ranks may ask one store."""


class WatchedStore(Protocol):
    """The methods of a store that the wait uses."""

    def check(self, keys: list[str], /) -> bool: ...


def await_keys(store: WatchedStore, keys: list[str], is_stale: Callable[[], bool]) -> bool:
    """Return True once all keys are there, False if the generation ended before.

    Raises what the store raises when it cannot be reached or was aborted.
    """
    pause_s = _FIRST_PAUSE_S
    while not is_stale():
        if store.check(keys):
            return True
        time.sleep(pause_s)
        pause_s = min(_LAST_PAUSE_S, pause_s * _GROWTH)
    return False

"""Counts on rank 0 whether all ranks agree, through one key of a generation's store."""

from collections.abc import Callable
from time import sleep
from typing import Protocol

__all__ = ["is_unanimous"]

PAUSE_S = 0.0005
"""All ranks come to it at the end of the same step, so the last one is not far."""
LAST_PAUSE_S, GROWTH = 0.05, 1.3


class CountingStore(Protocol):
    """The methods of a store that the vote uses."""

    def add(self, key: str, amount: int, /) -> int: ...
    def delete_key(self, key: str, /) -> bool: ...


def is_unanimous(
    store: CountingStore,
    key: str,
    *,
    rank: int,
    size: int,
    agrees: bool,
    is_stale: Callable[[], bool],
) -> bool | None:
    """Return on rank 0, once all have voted, whether every rank agrees; on others False at once.

    Each rank calls it once for a key. It returns None if the generation ended before all had voted.
    """
    # One number counts both: those who came, and, in units above that, those who agree.
    unit = size + 1
    total = store.add(key, 1 + (unit if agrees else 0))
    if rank != 0:
        return False
    pause_s = PAUSE_S
    while total % unit != size:
        if is_stale():
            return None
        sleep(pause_s)
        pause_s = min(LAST_PAUSE_S, pause_s * GROWTH)
        total = store.add(key, 0)
    store.delete_key(key)
    return total // unit == size

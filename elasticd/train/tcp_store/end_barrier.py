"""The end barrier: no rank leaves before every rank of the world has finished.

A rank that has finished still serves as a source for one that was lost, so it waits, and is called
into another generation if that happens. It needs two keys, whatever the size of the world: a
counter, and the outcome, for which all ranks wait.
"""

import time
from collections.abc import Callable
from typing import Protocol

from elasticd.train.tcp_store.key_wait import await_keys

__all__ = ["wait_for_all"]

PAUSE_S = 0.05

_COUNT = "elasticd/finished"
_END = "elasticd/end"
_ALL_FINISHED, _LEFT = "finished", "left"


class BarrierStore(Protocol):
    """The methods of a generation's store that the barrier needs."""

    def add(self, key: str, amount: int, /) -> int: ...
    def check(self, keys: list[str], /) -> bool: ...
    def get(self, key: str, /) -> bytes: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...


def wait_for_all(store: BarrierStore, size: int, is_stale: Callable[[], bool]) -> bool:
    """Wait until all ranks have called this; return False if the generation ended first.

    All ranks get the same answer: a rank that leaves writes so under the key where the last one to
    arrive would write that all have finished, and the first write counts. Otherwise some ranks
    would end, and others would wait for them in the next world. Raises what the store raises when
    it cannot be reached or was aborted.
    """
    if store.add(_COUNT, 1) == size and _decided(store, _ALL_FINISHED):
        return True
    if await_keys(store, [_END], is_stale) and store.get(_END) == _ALL_FINISHED.encode():
        return True
    # Somebody has left, as this rank must in a moment; or it leaves first.
    while not is_stale():
        time.sleep(PAUSE_S)
    return not _decided(store, _LEFT)


def _decided(store: BarrierStore, word: str) -> bool:
    """Write this word unless the other one is there; return whether this one is there then."""
    return store.compare_set(_END, "", word) == word.encode()

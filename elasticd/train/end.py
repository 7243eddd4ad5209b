"""The end barrier: nobody goes home before every rank of the world has finished.

A rank that has finished still serves as a source for one that was lost, so it waits, and is called
into another generation if that happens. Two keys do it, whatever the size of the world: a counter,
and one that the last rank sets and all others wait for.
"""

from collections.abc import Callable
from typing import Protocol

from elasticd.train.await_keys import await_keys

__all__ = ["wait_for_all"]

_COUNT = "elasticd/finished"
_ALL = "elasticd/all-finished"


class Counting(Protocol):
    """What is used of a generation's store."""

    def add(self, key: str, amount: int, /) -> int: ...
    def set(self, key: str, value: str, /) -> None: ...
    def check(self, keys: list[str], /) -> bool: ...


def wait_for_all(store: Counting, size: int, is_stale: Callable[[], bool]) -> bool:
    """Wait until all ranks have called this; False if the generation ended first.

    Once in a generation. Raises what the store raises when it cannot be reached or was aborted.
    """
    if store.add(_COUNT, 1) == size:
        store.set(_ALL, "")
        return True
    return await_keys(store, [_ALL], is_stale)

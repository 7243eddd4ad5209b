"""Broadcasts a decision of one rank to all through a store, and leaves no key behind."""

from collections.abc import Callable
from typing import Protocol

__all__ = ["BroadcastStore", "broadcast_from_first"]


class BroadcastStore(Protocol):
    """The methods of a store that the broadcast uses."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def delete_key(self, key: str, /) -> bool: ...


def broadcast_from_first(
    store: BroadcastStore,
    key: str,
    *,
    rank: int,
    size: int,
    decide: Callable[[], str],
    wait: Callable[[], None] = lambda: None,
) -> str:
    """Return on all ranks the text that rank 0 decides on; each rank calls this once for a key.

    The last rank to read the text deletes it: the store is rank 0's memory, and a run that decides
    once a minute would leave thousands of keys there. Ranks may be many steps apart. Where a rank
    dies before it has read, the keys of this one call stay. `wait` returns when the text is there.
    """
    if rank == 0:
        word = decide()
        store.set(key, word)
    else:
        wait()
        word = store.get(key).decode()
    if store.add(f"{key}/read", 1) == size:
        store.delete_key(key)
        store.delete_key(f"{key}/read")
    return word

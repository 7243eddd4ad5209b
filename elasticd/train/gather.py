"""Waits until every rank of a generation is at its store, so that whoever is not can be named."""

import time
from datetime import timedelta
from typing import Any

from torch.distributed import DistStoreError

__all__ = ["gather"]


def gather(store: Any, *, rank: int, size: int, deadline_s: float) -> tuple[int, ...]:
    """Return the ranks that did not come by then; empty: all are here.

    Two keys do it, whatever the size of the world: a counter, and one that the last rank sets.
    """
    store.set(f"here/{rank}", b"")
    if store.add("here", 1) == size:
        store.set("all-here", b"")
        return ()
    try:
        left_s = max(0.001, deadline_s - time.monotonic())
        store.wait(["all-here"], timedelta(seconds=left_s))
    except DistStoreError:
        here = [store.check([f"here/{each}"]) for each in range(size)]
        return tuple(each for each, is_here in enumerate(here) if not is_here)
    return ()

"""Libraries that read the rank while they are imported, and must read it again in each worker.

The pool has no rank, so such a library takes itself for rank 0 there. Without this module the pool
could not import such a library ahead, nor any package that imports it (all of Lightning).
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["READERS_OF_RANK", "renew_ranks"]


def _lightning(space: dict[str, Any]) -> None:
    space["rank_zero_only"].rank = space["_get_rank"]() or 0


def _torchmetrics(space: dict[str, Any]) -> None:
    space["rank_zero_only"].rank = int(os.environ.get("LOCAL_RANK", 0))


READERS_OF_RANK: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "lightning.fabric.utilities.rank_zero": _lightning,
    "lightning_fabric.utilities.rank_zero": _lightning,
    "torchmetrics.utilities.prints": _torchmetrics,
}
"""For each such module: the function that makes it read the rank again."""


def renew_ranks() -> None:
    """Set in these modules the values that they would have if they were imported now.

    Raises: Exception: one of them is not built as we know it.
    """
    for name, renew in READERS_OF_RANK.items():
        if name in sys.modules:
            renew(vars(sys.modules[name]))

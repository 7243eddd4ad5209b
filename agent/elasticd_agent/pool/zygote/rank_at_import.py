"""Libraries that ask for the rank as they are imported, and are told it again in each worker.

In the pool there is no rank. Such a library takes itself for rank 0 there; without this it could
not be imported ahead, and with it all that imports it: of Lightning everything.
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
"""By module: how it is told."""


def renew_ranks() -> None:
    """Set what these modules would have set if they were imported now.

    Raises:
        Exception: one of them is not built as we know it.
    """
    for name, renew in READERS_OF_RANK.items():
        if name in sys.modules:
            renew(vars(sys.modules[name]))

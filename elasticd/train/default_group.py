"""torch's default process group: made, aborted, taken down, again and again in one process."""

import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from elasticd.train import losses, wakeable

__all__ = ["COLLECTIVE_TIMEOUT_S", "abort_all", "drop", "make", "reset_count"]

COLLECTIVE_TIMEOUT_S = 1800.0
"""Of collectives and store calls. Long on purpose: to tell a hang from work is the agent's part."""

_LET_GO_S = 0.5
"""What collectives get to end when the sockets are shut; only lost ones take it."""


def make(backend: str, store: Any, *, rank: int, size: int) -> Any:
    """Make the default group; with Gloo alone, one whose waits can all be ended."""
    if backend == dist.Backend.GLOO:
        wakeable.install()
        timeout = wakeable.FOREVER
    else:
        timeout = timedelta(seconds=COLLECTIVE_TIMEOUT_S)
    hook = sys.excepthook
    try:
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    finally:
        # Each init wraps it once more; after a thousand generations it could not be called.
        sys.excepthook = hook
    return distributed_c10d._get_default_group()


def reset_count() -> None:
    """Number the process's groups from 0 again.

    The number is part of the keys by which ranks meet, and an init that was aborted leaves it one
    ahead of the other ranks'.
    """
    distributed_c10d._world.group_count = 0


def drop() -> None:
    """Let torch forget all groups, the script's own too; their sockets are shut by then."""
    losses.let_go(_LET_GO_S)
    if dist.is_initialized():
        dist.destroy_process_group()


def abort_all() -> None:
    """Abort by the libraries' own ways; for a thread of its own, since that may not return."""
    for group in list(distributed_c10d._world.pg_map):
        with suppress(Exception):
            group.abort()

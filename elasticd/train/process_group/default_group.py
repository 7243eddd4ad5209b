"""torch's default process group: made, aborted, taken down, again and again in one process."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from elasticd.train.process_group import ddp_group, gloo_group, gloo_lost

__all__ = [
    "COLLECTIVE_TIMEOUT_S",
    "abort_all",
    "backend_of",
    "connect",
    "drop",
    "has_nccl",
    "is_made",
    "make",
    "reset_count",
]

COLLECTIVE_TIMEOUT_S = 1800.0
"""The timeout of collectives and store calls. It is long on purpose: the agent decides what is a
hang."""

_LET_GO_S = 0.5
"""How long collectives get to end when the sockets are shut; only lost ones take it."""


def backend_of(device: torch.device) -> str:
    """Name the backends of a group whose ranks train on such a device."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def has_nccl(backend: str) -> bool:
    return "nccl" in backend


def make(backend: str, store: Any, *, rank: int, size: int, device: torch.device) -> Any:
    """Make the default group; with Gloo alone, one whose waits can all be ended.

    Given the device, NCCL begins to connect now, and not in the script's first collective.
    """
    options: dict[str, Any] = {"device_id": device} if has_nccl(backend) else {}
    if backend == dist.Backend.GLOO:
        gloo_group.install()
        ddp_group.install()
        timeout = gloo_group.FOREVER
    else:
        timeout = timedelta(seconds=COLLECTIVE_TIMEOUT_S)
    hook = sys.excepthook
    try:
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timeout, **options
        )
    finally:
        # Each init wraps it once more; after a thousand generations it could not be called.
        sys.excepthook = hook
    return distributed_c10d._get_default_group()


def connect(device: torch.device) -> None:
    """Queue the smallest collective on the device: when it is done, NCCL is connected."""
    dist.all_reduce(torch.zeros(1, device=device))


def is_made() -> bool:
    return bool(dist.is_initialized())


def reset_count() -> None:
    """Number the process's groups from 0 again.

    The number is part of the keys by which ranks meet, and an init that was aborted leaves it one
    ahead of the other ranks'.
    """
    distributed_c10d._world.group_count = 0


def drop() -> None:
    """Let torch forget all groups, the script's own too; their sockets are shut by then."""
    gloo_lost.keep_busy_groups(_LET_GO_S)
    if dist.is_initialized():
        dist.destroy_process_group()


def abort_all() -> None:
    """Abort all groups of NCCL at once; torch has forgotten them then. It may not return."""
    _abort_together(list(distributed_c10d._world.pg_names))
    world = dist.group.WORLD
    if world is None:
        return
    # Torch 2.6 takes no argument for this group alone, and would leave the script's own be.
    distributed_c10d._abort_process_group(world)


def _abort_together(groups: Sequence[Any]) -> None:
    """Abort several groups at the same time; one alone is left to what comes next.

    Torch means to do that, but since each of its aborts has a thread of its own, NCCL does not know
    that they belong together. What is freed with the first waits for the kernels of the second.
    """
    if len(groups) < 2:
        return
    errors: list[Exception] = []

    def abort(group: Any) -> None:
        try:
            group.abort()
        except Exception as exc:  # It is raised where somebody waits for all of them.
            errors.append(exc)

    threads = [Thread(target=abort, args=(each,), daemon=True) for each in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]

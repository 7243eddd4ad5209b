"""Who this process is in the present generation, and where it should put its tensors."""

import functools
import os
from dataclasses import dataclass, field

import torch

from elasticd.errors import EnvironmentProblem

__all__ = ["World", "device"]


@functools.cache
def device() -> torch.device:
    """Say where to build the model: this worker's own GPU, or the CPU where there is none.

    The same answer for the whole life of the process: the GPU follows the worker's slot on its
    node, not its rank, which may change with each generation.
    """
    count = torch.cuda.device_count()
    if not count:
        return torch.device("cpu")
    # The agent shows a worker the GPUs of its node's slots; LOCAL_RANK was this one's place among
    # them when it was started. A worker that sees just one GPU has been given its own.
    local_rank = int(os.environ.get("LOCAL_RANK", "0")) if count > 1 else 0
    if local_rank >= count:
        raise EnvironmentProblem(
            f"This is worker {local_rank} of its node, which shows it {count} GPUs: start no more "
            "workers per node than it has GPUs."
        )
    return torch.device("cuda", local_rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One generation as a worker sees it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: str
    """Id of the node that this worker runs on."""
    node_rank: int
    nodes: int
    generation: int
    device: torch.device = field(default_factory=device)

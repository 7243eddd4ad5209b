"""This process's rank in the present generation, and the device for its tensors."""

from dataclasses import dataclass, field

import torch

from elasticd.train.device.device import device

__all__ = ["World"]


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

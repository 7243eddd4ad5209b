"""This process's rank in the present generation, and the device for its tensors."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from elasticd.train.device.device import device

if TYPE_CHECKING:  # An import of World loads no message.
    from elasticd.channel.worker import Enter

__all__ = ["World", "world_of"]


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


def world_of(enter: "Enter", device: torch.device) -> World:
    """Return the world that the agent's message names, with this process's device."""
    return World(
        rank=enter.rank,
        size=enter.size,
        local_rank=enter.local_rank,
        local_size=enter.local_size,
        node=enter.node,
        node_rank=enter.node_rank,
        nodes=enter.nodes,
        generation=enter.generation,
        device=device,
    )

"""Optimizers whose parameters are sharded: no rank has the whole of their state."""

from collections.abc import Iterable
from typing import Any

import torch

from elasticd.train.shard import local_part
from elasticd.train.undo import parameters_of

__all__ = ["is_sharded", "make_room"]


def is_sharded(optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """True if a parameter of theirs is a DTensor."""
    return any(
        not local_part(parameter).is_whole
        for optimizer in optimizers
        for parameter in parameters_of(optimizer)
    )


def make_room(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Have those of sharded parameters make their state now, so that it can be filled in place."""
    for optimizer in optimizers:
        if not optimizer.state and is_sharded([optimizer]):
            _step_in_place(optimizer)


def _step_in_place(optimizer: torch.optim.Optimizer) -> None:
    """Take a step without a gradient and with a learning rate of zero: it changes no parameter."""
    kept: list[dict[str, Any]] = [
        {name: group[name] for name in ("lr", "weight_decay") if name in group}
        for group in optimizer.param_groups
    ]
    for group, names in zip(optimizer.param_groups, kept, strict=True):
        group.update(dict.fromkeys(names, 0.0))
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    try:
        optimizer.step()
    finally:
        for group, names in zip(optimizer.param_groups, kept, strict=True):
            group.update(names)
        optimizer.zero_grad(set_to_none=True)

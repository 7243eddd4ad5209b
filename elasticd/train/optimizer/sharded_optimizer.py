"""Optimizers whose parameters are sharded: no rank has the whole of their state."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from elasticd.tensors.local_shard import has_replicas, local_part
from elasticd.train.optimizer.optimizer_undo import parameters_of

__all__ = ["any_rank", "barrier", "has_other_groups", "is_sharded", "make_room"]


def is_sharded(optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """Return whether one of their parameters is a DTensor."""
    return any(
        not local_part(parameter).is_plain_tensor
        for optimizer in optimizers
        for parameter in parameters_of(optimizer)
    )


def has_other_groups() -> bool:
    """Return whether there are groups besides the default one (HSDP has some for its replicas)."""
    return len(dist.distributed_c10d._world.pg_map) > 1


def barrier(optimizers: Iterable[torch.optim.Optimizer], size: int) -> Callable[[], object] | None:
    """Return a function that waits until all ranks have arrived, for a state that can lose a rank
    (HSDP).

    Of a replicated state one rank that has taken a step is enough, of a sharded one it takes a
    whole replica. Without this barrier, a rank that dies while a step's last sums are made leaves
    some ranks behind that have the sums and take the step, and others that do not: neither group is
    a whole state. It returns None if there are no replicas that the barrier would help, or the
    state is not sharded.
    """
    parameters = [each for optimizer in optimizers for each in parameters_of(optimizer)]
    parts = [each for each in parameters if not local_part(each).is_plain_tensor]
    if size < 2 or not parts or not all(has_replicas(each) for each in parts):
        return None
    return _wait_for_all


def _wait_for_all() -> None:
    """Wait for all ranks at a barrier of Gloo's.

    It has as many rounds as the logarithm of the number of ranks; a sum goes round a ring, two
    rounds for each rank.
    """
    group = dist.group.WORLD
    assert group is not None
    options = dist.BarrierOptions()
    options.device = torch.device("cpu")  # Else it would be NCCL's, which waits for the GPU.
    group.barrier(options).wait()


def any_rank(
    optimizers: Iterable[torch.optim.Optimizer], size: int
) -> Callable[[bool], bool] | None:
    """Return a function that says on all ranks whether one of them found something in its part of
    the gradients.

    Flags are summed up: the greatest of numbers that may be NaN is not NaN, with Gloo as with NCCL.
    It returns None if each rank sees the whole of each gradient.
    """
    if size < 2 or not is_sharded(optimizers):
        return None

    def is_seen(flag: bool) -> bool:
        count = torch.tensor([float(flag)], device="cpu")
        dist.all_reduce(count)
        return bool(count.item())

    return is_seen


def make_room(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Make optimizers of sharded parameters create their state now, so that it can be filled in
    place.
    """
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

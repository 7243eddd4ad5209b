"""Checks that a state holds every parameter that its optimizers change.

The state of an optimizer has its moments and no parameters. If the model is missing in the state,
training goes well until the first failure. Then the process that replaces a rank trains the
parameters that it started with, and no checkpoint has any.
"""

from collections.abc import Collection, Iterable

import torch

from elasticd.errors import CallError
from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.tree import Tree, paths
from elasticd.train.optimizer.optimizer_undo import parameters_of

__all__ = ["check_coverage"]


def check_coverage(
    optimizers: Iterable[torch.optim.Optimizer], tree: Tree, objects: Collection[str]
) -> None:
    """Refuse a parameter of an optimizer whose memory no tensor of the state shares.

    Args:
        tree: the state.
        objects: the names of entries whose class is the script's own. They may save copies, so a
            tensor of the same size is enough there.

    Raises:
        CallError: there is such a parameter.
    """
    places = {_place(each) for each in tree.tensors}
    copied = tuple(f"state.{name}." for name in objects)
    sizes = {
        each.numel()
        for path, each in zip(paths(tree), tree.tensors, strict=True)
        if copied and path.startswith(copied)
    }
    for optimizer in optimizers:
        missing = {
            id(each): each
            for each in parameters_of(optimizer)
            if each.numel() and _place(each) not in places and each.numel() not in sizes
        }
        if missing:
            shape = list(next(iter(missing.values())).shape)
            raise CallError(
                f"The {type(optimizer).__name__} of the state trains {len(missing)} parameters "
                f"that no entry of it holds (the first has the shape {shape}), so a rank that is "
                "replaced would not get them, and no checkpoint would have them: give State(...) "
                "the model that they belong to, too."
            )


def _place(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory, which a parameter and its view share."""
    return memory_of(tensor).untyped_storage().data_ptr()

"""Does the state hold every parameter that its optimizers change?

The state of an optimizer has its moments and no parameters. Where the model was forgotten, training
goes on well until the first failure: then a process that replaces a rank trains the parameters that
it was born with, and no checkpoint has any.
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
    """Look for a parameter of an optimizer that no tensor of the state shares its memory with.

    `objects` are the entries whose class is the script's own. They may save copies, so of what they
    save a tensor of the same size will do.

    Raises:
        CallError: there is one.
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
    """The address of its memory: a view of a parameter holds it as well as the parameter."""
    return memory_of(tensor).untyped_storage().data_ptr()

"""Takes off the hooks that `train` put on what outlives it, and drops the gradients that it left.

`train` is called again after each change of world, and registers its hooks again. If the old hooks
stayed, ranks that were there before would have each hook twice, and new ranks once: a hook that
halves a gradient would quarter it on some of them.

A script that clears its gradients at the end of a step would add those of a step that never was to
those of the repeated one, on all ranks but the new ones. Where it sums them up over the ranks, no
comparison of replicas shows that.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from elasticd.train.optimizer.optimizer_undo import parameters_of
from elasticd.train.state.optimizer_load import optimizers_of

__all__ = ["ScriptHooks", "drop_gradients"]

_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class ScriptHooks:
    """The hooks on the entries of one state."""

    def __init__(self) -> None:
        self._noted: list[tuple[Any, dict[str, frozenset[Any]]]] = []

    def note(self, entries: Iterable[object]) -> None:
        """Note the hooks that stay: those that `entries` have now, before functions of `world` and
        `train` are called.
        """
        owners: dict[int, Any] = {}
        for entry in entries:
            for part in entry.modules() if isinstance(entry, torch.nn.Module) else (entry,):
                owners[id(part)] = part
                if isinstance(part, torch.nn.Module):
                    owners |= {id(each): each for each in part.parameters(recurse=False)}
        self._noted = [
            (owner, {name: frozenset(table) for name, table in _tables(owner)})
            for owner in owners.values()
        ]

    def take_off(self) -> None:
        """Remove the hooks that were registered since `note`."""
        for owner, before in self._noted:
            for name, table in _tables(owner):
                for key in table.keys() - before.get(name, frozenset()):
                    del table[key]
        self._noted = []


def drop_gradients(objects: Iterable[object], values: object) -> None:
    """Leave no gradient on modules, on what optimizers train, and on tensors among the values."""
    for each in objects:
        if isinstance(each, torch.nn.Module):
            for parameter in each.parameters():
                parameter.grad = None
        for optimizer in optimizers_of(each):
            for trained in parameters_of(optimizer):
                trained.grad = None
    for tensor in _tensors(values):
        tensor.grad = None


def _tables(owner: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    if isinstance(owner, torch.Tensor):
        every = [(name, getattr(owner, name, None)) for name in _OF_TENSORS]
    else:
        own = getattr(owner, "__dict__", {})
        every = [(name, each) for name, each in own.items() if name.endswith("_hooks")]
    for name, table in every:
        if isinstance(table, dict):
            yield name, table


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.is_leaf:  # Others have none, and torch warns of the question.
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)

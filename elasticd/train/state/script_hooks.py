"""Takes off the hooks that `train` put on modules, parameters and optimizers which outlive it.

`train` is called again after each change of world, and registers its hooks again. If the old hooks
stayed, ranks that were there before would have each hook twice, and new ranks once: a hook that
halves a gradient would quarter it on some of them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

__all__ = ["ScriptHooks"]

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


def _tables(owner: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    if isinstance(owner, torch.Tensor):
        every = [(name, getattr(owner, name, None)) for name in _OF_TENSORS]
    else:
        own = getattr(owner, "__dict__", {})
        every = [(name, each) for name, each in own.items() if name.endswith("_hooks")]
    for name, table in every:
        if isinstance(table, dict):
            yield name, table

"""Hooks that `train` puts on modules, parameters and optimizers which outlive it.

`train` is called anew after each change of world, and registers them again. Without a word they
would be there twice, on the ranks that were there before and on no others: a hook that halves a
gradient would quarter it there.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

__all__ = ["ScriptHooks"]

_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class ScriptHooks:
    """Those of one state; what `train` registered is taken off when it is entered again."""

    def __init__(self) -> None:
        self._noted: list[tuple[Any, dict[str, frozenset[Any]]]] = []

    def note(self, entries: Iterable[object]) -> None:
        """Take what is registered now for what stays; `entries` outlive this generation."""
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
        """Remove what was registered since."""
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

"""The values of an optimizer's parameter groups: learning rates and the like."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from elasticd.tensors.value_copy import ValueCopy, copy_value, is_constant, restored

__all__ = ["GroupValues", "groups_kept"]


class GroupValues:
    """The groups as they were when this was made: the same dicts, and all that they held."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._groups: list[tuple[dict[str, Any], list[Any], ValueCopy]] = []
        self.is_constant = True
        """None of the values can change, so that the same objects are the same values."""
        for group in optimizer.param_groups:
            others = {key: value for key, value in group.items() if key != "params"}
            self.is_constant &= all(map(is_constant, others.values()))
            self._groups.append((group, list(group["params"]), copy_value(others)))

    def put_back(self) -> None:
        """Restore the groups as they were; this may be repeated."""
        for group, parameters, values in self._groups:
            group.clear()
            group["params"] = parameters.copy()
            group.update(restored(values))
        self.optimizer.param_groups[:] = [group for group, *_ in self._groups]


@contextmanager
def groups_kept(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[None]:
    """Put the groups back afterwards: a scheduler writes its first rates when it is made.

    For the same reason optimizers that are made, too, are loaded when all are there.
    """
    groups = [GroupValues(each) for each in optimizers]
    try:
        yield
    finally:
        for each in groups:
            each.put_back()

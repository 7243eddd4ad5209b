"""The values of an optimizer's parameter groups: learning rates and the like."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import is_not
from typing import Any

import torch

from elasticd.tensors.value_copy import ValueCopy, copy_value, is_constant, restored

__all__ = ["GroupValues", "groups_kept"]


class GroupValues:
    """The groups as they were when this was made: the same dicts, their parameters, their values.

    They seldom change from one commit to the next, so `is_current` is called most.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._groups: list[tuple[dict[str, Any], dict[str, Any], list[Any], ValueCopy]] = []
        self._is_constant = True
        for group in optimizer.param_groups:
            others = {key: value for key, value in group.items() if key != "params"}
            self._is_constant &= all(map(is_constant, others.values()))
            self._groups.append((group, group.copy(), list(group["params"]), copy_value(others)))

    def is_current(self) -> bool:
        """Return whether a copy made now would be the same."""
        groups = self.optimizer.param_groups
        if not self._is_constant or len(groups) != len(self._groups):
            return False
        for group, (before, values, parameters, _) in zip(groups, self._groups, strict=True):
            if (
                group is not before
                or len(group) != len(values)
                or len(group["params"]) != len(parameters)
                or any(map(is_not, group, values))
                or any(map(is_not, group.values(), values.values()))
                or any(map(is_not, group["params"], parameters))
            ):
                return False
        return True

    def put_back(self) -> None:
        """Restore the groups as they were; this may be repeated."""
        for group, _, parameters, values in self._groups:
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

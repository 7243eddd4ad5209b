"""Finds out within about a second that `train` changes what the modules of a state consist of.

The structure of a state is compared at the commits 1, 2, 4, 8, ..., because that asks each entry
for its state. A layer that is pruned at step 1,000 would be found at step 1,024, and a process that
replaces a rank before that has no place for it. In between the dicts of each module are compared
with those of the last look: their keys, the parts and parameters in them, and the types and shapes
of tensors. If they differ, the comparison of the structure says whether that matters: a buffer that
no state has may come in training.

A look takes 7 us for a model of 12 parameters and 500 us for one of 960, so at most one is made in
a second. Where a script changes something at each look without harm, the looks become more seldom.
Between two of them a commit only reads the clock (0.1 us). A sharded state is looked at by the
number of its commits: it is asked for its state only where all ranks are, since modules that were
gathered for an evaluation are taken apart by that.
"""

import time
from collections.abc import Callable, Iterable
from itertools import chain
from operator import is_not
from typing import Any

import torch

from elasticd.errors import CallError
from elasticd.tensors.local_shard import is_distributed

__all__ = ["StructureChanged", "StructureCheck"]

PERIOD_S = 1.0
"""The time from one look to the next."""
SHARE = 0.002
"""At most so much of a script's time goes into the looks."""
COMMITS_APART = 64
"""The commits from one look at a sharded state to the next."""


class StructureChanged(CallError):
    """What `train` has changed would be missing in each process that replaces a rank."""

    ends_job = True  # Other ranks may have been interrupted before their own look.


class StructureCheck:
    """The looks of one generation."""

    def __init__(
        self,
        modules: Iterable[torch.nn.Module],
        check: Callable[[], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` compares the structure of the whole state, and raises CallError if it differs."""
        self._modules = tuple(modules)
        self._check, self._clock = check, clock
        self._count = 0
        self._homes: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = []
        self._take()
        is_sharded = any(is_distributed(each) for each in self._tensors() if each is not None)
        self._commits_apart = COMMITS_APART if is_sharded else 0
        self._due_s = clock() + PERIOD_S

    def look(self, step: int) -> None:
        """Look at the modules if a look is due; called at each commit.

        Raises: StructureChanged: the state is another one than `elasticd.run` was given.
        """
        if self._commits_apart:
            self._count += 1
            if self._count % self._commits_apart:
                return
        elif self._clock() < self._due_s:
            return
        began_s = self._clock()
        if self._has_changed():
            try:
                self._check()
            except CallError as exc:
                raise StructureChanged(str(exc)) from exc
            self._take()
        ended_s = self._clock()
        self._due_s = ended_s + max(PERIOD_S, (ended_s - began_s) / SHARE)

    def _take(self) -> None:
        """Take the modules as they are now for those that are in order."""
        every = {id(part): part for module in self._modules for part in module.modules()}
        self._homes = [(part._modules, part._parameters, part._buffers) for part in every.values()]
        self._keys, self._fixed, self._kinds = self._now()

    def _has_changed(self) -> bool:
        keys, fixed, kinds = self._now()
        if keys != self._keys or kinds != self._kinds or len(fixed) != len(self._fixed):
            return True
        return any(map(is_not, fixed, self._fixed))

    def _now(self) -> tuple[list[tuple[str, ...]], list[Any], list[object]]:
        """Return the keys of all dicts, the parts and parameters, and the kinds of the tensors."""
        keys = list(map(tuple, chain.from_iterable(self._homes)))
        fixed = [each for home in self._homes for table in home[:2] for each in table.values()]
        kinds: list[object] = [
            # A nested one has no shape, and is refused by the comparison.
            each if each is None or each.is_nested else (each.dtype, each.shape)
            for each in self._tensors()
        ]
        return keys, fixed, kinds

    def _tensors(self) -> list[torch.Tensor | None]:
        return [each for home in self._homes for table in home[1:] for each in table.values()]

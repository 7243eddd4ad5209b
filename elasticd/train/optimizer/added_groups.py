"""Checks that `train` does nothing to the state's optimizers that the next process would lack.

A process that replaces a rank builds its optimizers as the script builds them before
`elasticd.run`, and then gets the state of one that trains. Parameters that were added in training
have no place there. A scheduler that was made in training is made anew whenever the world changes,
and begins at its first step again.
"""

from collections.abc import Sequence

import torch

from elasticd.errors import CallError

__all__ = ["BuiltGroups"]

_SCHEDULED = "initial_lr"
"""What a scheduler writes into the groups of its optimizer."""


class BuiltGroups:
    """The parameter groups of optimizers as they were when a generation began."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = optimizers
        self._sizes = self._count()
        self._unscheduled = [
            each
            for each in optimizers
            if not any(_SCHEDULED in group for group in each.param_groups)
        ]

    def check(self) -> None:
        """Check the optimizers' parameters before a commit.

        Raises: CallError: they have other parameters, or a scheduler that the state does not hold.
        """
        if self._count() != self._sizes:
            raise CallError(
                "An optimizer of the state was given other parameters in train, for which a "
                "process that replaces this one has no place: build it with all parameters that "
                "it will ever train, and set requires_grad at the top of train, from values in the "
                "state."
            )
        for each in self._unscheduled:
            if any(_SCHEDULED in group for group in each.param_groups):
                raise CallError(
                    f"A learning rate scheduler was made in train for the {type(each).__name__} "
                    "of the state. After each change of world it would be made anew, and begin "
                    "from its first step: make it before elasticd.run, and give it to State(...), "
                    "too."
                )

    def _count(self) -> list[int]:
        return [
            len(group["params"])
            for optimizer in self._optimizers
            for group in optimizer.param_groups
        ]

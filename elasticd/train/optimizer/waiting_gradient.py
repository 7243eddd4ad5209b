"""Whether gradients wait at a commit for an optimizer's step.

Where no optimizer made a step, the samples wait too, and are read again after a failure. Where one
made a step and another one goes on to collect gradients, the samples count with the first, and a
failure would lose what the second has collected. Such gradients look like ones that are written and
thrown away. So the script gets a warning and no error.
"""

import sys
import weakref
from collections.abc import Collection, Iterable

import torch

from elasticd.train.optimizer.optimizer_undo import parameters_of

__all__ = ["WaitingGradients"]


class WaitingGradients:
    """The gradients of some optimizers, from one commit to the next."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._is_told = False

    def are_there(
        self,
        optimizers: Collection[torch.optim.Optimizer],
        begun: Collection[torch.optim.Optimizer],
        parameters: Iterable[torch.Tensor],
    ) -> bool:
        """Return whether there are gradients and no optimizer made a step; `begun` are those that
        did.
        """
        if not begun:
            return any(each.grad is not None for each in parameters)
        if len(begun) < len(optimizers) and not self._is_told:
            for number, each in enumerate(optimizers):
                self._look(number, each, has_stepped=each in begun)
        return False

    def _look(self, number: int, optimizer: torch.optim.Optimizer, *, has_stepped: bool) -> None:
        """Say once if more was added to a gradient since the last commit, and not used."""
        gradients = (each.grad for each in parameters_of(optimizer) if each.grad is not None)
        first = None if has_stepped else next(gradients, None)
        before, version = self._seen.pop(number, (None, 0))
        if first is None:
            return
        self._seen[number] = weakref.ref(first), first._version
        if before is not None and before() is first and first._version > version:
            self._is_told = True
            sys.stderr.write(
                "elasticd: one optimizer made a step for each commit while gradients of another "
                "one, of more than one commit, wait for its step: a failure loses what they have "
                "of commits before. If that one is to use them, commit after its step, for all "
                "steps of the others until then.\n"
            )

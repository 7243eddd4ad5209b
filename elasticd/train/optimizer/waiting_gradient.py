"""Whether gradients wait at a commit for an optimizer's step.

Where no optimizer made a step, the whole commit waits with them, so that a failure goes back to the
last step. What an earlier step left is no such gradient: torch counts writes, so gradients that are
as they were at the last commit that counts have been used. Most scripts make a step for each
commit, and pay nothing: what their gradients are like is noted only once a commit had none. Until
then gradients count as waiting at a commit without a step, and at the end of an epoch if the script
has taken a batch since the last step: a commit that waits though it need not costs what is done
again after a failure, no more.

Where one optimizer made a step and another one goes on to collect gradients, the samples count with
the first, and a failure would lose what the second has collected. That cannot be told for certain
from gradients that are written and thrown away, so it is said and not refused.
"""

import sys
from collections.abc import Collection, Sequence
from weakref import ref

import torch

from elasticd.tensors.local_shard import memory_of
from elasticd.train.optimizer.optimizer_undo import parameters_of

__all__ = ["WaitingGradients"]

_Written = tuple["ref[torch.Tensor]", int]
"""A gradient, and how often torch has seen it written."""


class WaitingGradients:
    """The gradients of some optimizers, from one commit to the next."""

    def __init__(self) -> None:
        self._seen: dict[int, _Written] = {}
        self._is_told = False
        self._is_noted = False
        """True if gradients are noted at each commit."""
        self._used: dict[int, _Written] | None = {}
        """Those of the last commit that counts, by the indices of the parameters; None: not noted.
        """

    def begin(self) -> None:
        """Begin a generation, in which no parameter has a gradient yet.

        What was noted before is forgotten, so that a new rank decides as the others do.
        """
        self._used, self._is_noted = {}, False

    def are_there(
        self,
        parameters: Sequence[torch.Tensor],
        optimizers: Collection[torch.optim.Optimizer],
        begun: Collection[torch.optim.Optimizer],
        is_likely: bool,
    ) -> bool:
        """Return whether no optimizer made a step and gradients wait for one; `begun` are those
        that made one.

        `is_likely`: they wait if it is not known what they were like before.
        """
        if begun:
            self._used = _written(parameters) if self._is_noted else None
            if len(begun) < len(optimizers) and not self._is_told:
                for number, each in enumerate(optimizers):
                    self._look(number, each, has_stepped=each in begun)
            return False
        self._is_noted |= is_likely
        now, used = _written(parameters), self._used
        if now and (is_likely if used is None else not _are_in(used, now)):
            return True
        self._used = now
        return False

    def _look(self, number: int, optimizer: torch.optim.Optimizer, *, has_stepped: bool) -> None:
        """Say once if more was added to a gradient since the last commit, and not used."""
        gradients = (each.grad for each in parameters_of(optimizer) if each.grad is not None)
        first = None if has_stepped else next(gradients, None)
        before, version = self._seen.pop(number, (None, 0))
        if first is None:
            return
        self._seen[number] = ref(first), first._version
        if before is not None and before() is first and first._version > version:
            self._is_told = True
            sys.stderr.write(
                "elasticd: one optimizer made a step for each commit while gradients of another "
                "one, of more than one commit, wait for its step: a failure loses what they have "
                "of commits before. If that one is to use them, commit after its step, for all "
                "steps of the others until then.\n"
            )


def _written(parameters: Sequence[torch.Tensor]) -> dict[int, _Written]:
    """Return the gradients that are there, by the indices of their parameters."""
    every = ((at, each.grad) for at, each in enumerate(parameters))
    # The part of a DTensor that is here is written without the counter of the whole.
    return {at: (ref(grad), memory_of(grad)._version) for at, grad in every if grad is not None}


def _are_in(used: dict[int, _Written], now: dict[int, _Written]) -> bool:
    """Return whether each gradient was there, and has not been written since."""
    pairs = ((used.get(at), each) for at, each in now.items())
    return all(
        one is not None and one[1] == other[1] and one[0]() is other[0]() for one, other in pairs
    )

"""Whether gradients wait at a commit for an optimizer's step.

Where no optimizer made a step, the samples wait too, and are read again after a failure. Where one
made a step and another one goes on to collect gradients, the samples count with the first, and a
failure would lose what the second has collected. That cannot be told for certain from gradients
that are written and thrown away, so it is said and not refused.

At the end of an epoch gradients lie there in most scripts, which clear them at the begin of a step.
Those of a step that was made are the very ones of its commit; what was added since then waits.
"""

import sys
import weakref
from collections.abc import Collection, Iterable

import torch

from elasticd.train.optimizer.optimizer_undo import parameters_of

__all__ = ["GradientMark", "WaitingGradients"]


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


class GradientMark:
    """Whether a backward pass came since the last commit that counted; one parameter shows it."""

    def __init__(self) -> None:
        self._every: tuple[torch.Tensor, ...] = ()
        self._shown: torch.Tensor | None = None
        self._marked: tuple[weakref.ref[torch.Tensor], int] | None = None

    def bind(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Watch over these optimizers' parameters, which have no gradients now."""
        self._every = tuple(each for one in optimizers for each in parameters_of(one))
        self._shown = next((each for each in self._every if each.requires_grad), None)
        self._marked = None

    def set(self) -> None:
        """Take the gradients that are there for used: a commit counts their samples."""
        gradient = None if self._shown is None else self._shown.grad
        self._marked = None if gradient is None else (weakref.ref(gradient), gradient._version)

    def is_passed(self) -> bool:
        """Return whether gradients are there that were not at the last commit, or more was added.

        Gradients that were only cleared in place count as added to. Where the parameter that is
        looked at has none and others have, another one is looked at from now on.
        """
        found = next((each for each in self._every if each.grad is not None), None)
        if found is None:
            return False
        gradient = self._shown.grad if self._shown is not None else None
        if gradient is None:
            self._shown, gradient, self._marked = found, found.grad, None
        if self._marked is None or gradient is None:
            return True
        marked, version = self._marked
        return marked() is not gradient or gradient._version > version

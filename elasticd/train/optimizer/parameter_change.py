"""Finds out whether parameters changed although no optimizer was in a step.

An evaluation puts an average in their place and takes it out again, a script clamps them. torch's
counters grow with each write. So they cannot tell whether what was taken out was put back, and they
do not grow at all where it was done through `tensor.data`. The first elements of a parameter can
tell both: whoever replaces a parameter replaces them. Those of two parameters are copied at each
commit, and looked at when a rank was interrupted. Those of all are copied where a write of the same
values is to be expected: as a generation begins (DistributedDataParallel writes to all parameters
when it is built), as a pause begins, and at each commit of a script that was seen to write.
Rejected: to copy those of all at each commit of every script, which would cost a tenth of it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, is_not
from typing import Any

import torch

from elasticd.tensors.byte_row import ByteRow, is_in_a_row
from elasticd.tensors.local_shard import memory_of

__all__ = ["ParameterWatch"]

BEGINNING = 16
"""Elements of a parameter."""

_state = attrgetter("state")
_version = attrgetter("_version")
_address = torch.Tensor.data_ptr


class ParameterWatch:
    """Watches what some optimizers own, from one commit to the next."""

    def __init__(self) -> None:
        self._optimizers: Sequence[torch.optim.Optimizer] = ()
        self._parameters: list[torch.Tensor] = []
        self._version_sum: int | None = None
        self._states: list[Any] = []
        self._few = self._all = _Sample(())
        """Samples as of the last commit: of the first and the last parameter, and of all
        parameters."""
        self._is_sampled = False
        """True if the sample of all parameters is that of the last commit."""
        self.is_usual = False
        """True if the script was seen to write into parameters."""

    @property
    def is_watched(self) -> bool:
        """Return whether it is known what was committed."""
        return self._version_sum is not None

    def bind(
        self, optimizers: Sequence[torch.optim.Optimizer], parameters: list[torch.Tensor]
    ) -> None:
        """Watch these from the next `look_away` on."""
        self._optimizers, self._parameters = optimizers, parameters
        self._few = _Sample([parameters[0], parameters[-1]] if parameters else [])
        self._all = _Sample(parameters)
        self.forget()

    def forget(self) -> None:
        """Forget what was committed."""
        self._version_sum = None

    def look_away(self, *, is_sampled: bool = False) -> None:
        """Take the present values for those that were committed."""
        self._version_sum = sum(map(_version, self._parameters))
        self._states = list(map(_state, self._optimizers))
        self._few.take()
        self._is_sampled = is_sampled or self.is_usual
        if self._is_sampled:
            self._all.take()

    def look(self, *, is_close: bool = False) -> bool:
        """Return whether something is not what was committed.

        `is_close`: check also where torch's counters do not show it. That waits for the device.
        """
        if self._version_sum is None:
            return False
        version_sum = sum(map(_version, self._parameters))
        # Loading into an optimizer makes another dict.
        has_loaded = any(map(is_not, map(_state, self._optimizers), self._states))
        if has_loaded or version_sum != self._version_sum:
            if has_loaded or not self._is_sampled or not self._all.is_current():
                self.is_usual = True
                return True
            self._version_sum = version_sum
        sample = self._all if self._is_sampled else self._few
        return is_close and not sample.is_current()

    def has_moved(self) -> bool:
        """Return whether parameters are different now, whatever was written to them meanwhile."""
        return self._version_sum is not None and not self._few.is_current()


class _Sample:
    """The beginnings of some parameters, and where their memory is."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = parameters
        self._row: ByteRow | None = None
        self._find()

    def take(self) -> None:
        """Copy what is there now."""
        if self._now() != self._addresses:
            self._find()
        elif self._row is not None:
            self._row.copy()
        elif self._copies:
            torch._foreach_copy_(self._copies, self._views)

    def is_current(self) -> bool:
        """Return whether all is as it was copied."""
        if self._now() != self._addresses:
            return False
        if self._row is not None:
            return self._row.is_current()
        return all(
            # As bytes, in which NaN is equal to itself.
            torch.equal(view.contiguous().view(torch.uint8), copied.view(torch.uint8))
            for view, copied in zip(self._views, self._copies, strict=True)
        )

    def _find(self) -> None:
        here = [memory_of(each) for each in self._parameters]
        # The local tensor of a DTensor is asked for each time: another may be put in its place.
        is_plain = all(a is b for a, b in zip(here, self._parameters, strict=True))
        parameters = self._parameters
        self._now: Callable[[], list[int]] = partial(_places, parameters) if is_plain else self._ask
        self._addresses = self._now()
        self._views = [_beginning(each) for each in self._parameters]
        self._row, self._copies = None, []
        if all(map(is_in_a_row, self._views)):
            self._row = ByteRow(self._views)
            self._row.copy()
        else:
            self._copies = [view.clone() for view in self._views]

    def _ask(self) -> list[int]:
        return _places([memory_of(each) for each in self._parameters])


def _places(tensors: Sequence[torch.Tensor]) -> list[int]:
    return list(map(_address, tensors))


def _beginning(parameter: torch.Tensor) -> torch.Tensor:
    first = memory_of(parameter).detach()
    while first.dim() > 1 and first.numel():
        first = first[0]
    return first.view(-1)[:BEGINNING] if first.dim() == 1 else first.reshape(-1)

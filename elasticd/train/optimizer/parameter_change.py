"""Finds out whether parameters changed although no optimizer was in a step.

An evaluation puts an average in their place and takes it out again, a script clamps them. torch's
counters grow with each write. So they cannot tell whether what was taken out was put back, and they
do not grow at all where it was done through `tensor.data`. Three samples can tell both:

- The first elements of two parameters are copied at each commit, and looked at when a rank was
  interrupted. Whoever replaces all parameters replaces these.
- A hash of all bytes finds also who writes to a part of one parameter. It is taken where a write
  is to be expected: as a generation begins (DistributedDataParallel writes to all parameters when
  it is built), as a pause begins, and at each commit of a script that was seen to write, until it
  has not for a while. That is found out at the commits that `is_probed` chooses, as most scripts
  that write do it in each step; where it would take long, later.
- The first elements of all parameters stand in for the hash as a generation of a large model on the
  host begins, which would wait for it.

On the host a hash takes a thirtieth of the time of a step of AdamW (256 MB: 29 and 900 ms on one
core). Rejected: to take it at each commit of every script. On a GPU that is a kernel for each
parameter, and on the host much for a small model, whose commit takes microseconds.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, is_not
from typing import Any

import torch

from elasticd.tensors.byte_row import ByteRow, is_in_a_row
from elasticd.tensors.fingerprint import placed_numbers_of
from elasticd.tensors.local_shard import memory_of

__all__ = ["ParameterMonitor", "is_probed"]

PREFIX_ELEMENTS = 16
"""Elements of a parameter."""

FIRST_COMMITS = 8
"""After each of these of a process all bytes are hashed, and compared when the next step begins."""

COMMITS_APART = 61
"""So often they are hashed later, too: a prime, so that what a script does in each tenth or each
hundredth step is met as well. It is two passes over the memory in 61 steps."""

QUIET_COMMITS = 2 * COMMITS_APART
"""After so many in which nothing was found a script that was seen to write is read as any other."""

SHARE = 0.02
"""Of a script's time at most so much goes into a hash: steps may be much shorter than AdamW's
(sparse rows of 128 MB by SGD: 1.2 ms, where a hash takes 22). A look at its habits that would take
more waits, and what is done meanwhile is as if it were not due."""

LIGHT_BYTES = 1 << 20
"""Parameters up to this size take a hash of 0.1 ms, and are read whenever a look is due."""

_state = attrgetter("state")
_version = attrgetter("_version")
_address = torch.Tensor.data_ptr


def is_probed(commits: int) -> bool:
    """Return whether a script's habits are looked at after this many commits."""
    return commits < FIRST_COMMITS or commits % COMMITS_APART == 0


class ParameterMonitor:
    """Watches the parameters of some optimizers, from one commit to the next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._optimizers: Sequence[torch.optim.Optimizer] = ()
        self._parameters: list[torch.Tensor] = []
        self._version_sum: int | None = None
        self._states: list[Any] = []
        self._few: _Sample = _PrefixSample(())
        """Of the first and the last parameter, as of the last commit."""
        self._all: _Sample = _PrefixSample(())
        self._hashed: _Sample = _HashSample(())
        self._taken: _Sample | None = None
        """The one of all parameters that is of the last commit."""
        self._is_expected = False
        """True if a write that changes nothing is no habit of the script."""
        self._is_known = False
        """True if it may be that what was written was put back. Elsewhere a write counts as a
        change where no hash of all bytes tells otherwise."""
        self.is_usual = False
        """True if the script was seen to write into parameters."""
        self._quiet_commits = 0
        """Since it was seen the last time."""
        self._is_due = self._is_light = False
        self._hash_s: float | None = None
        """The least time that a hash took; a process that was stopped meanwhile tells nothing."""
        self._hashed_at_s = 0.0

    @property
    def is_hashed(self) -> bool:
        """Return whether a change of any byte since the last commit is seen."""
        return self._taken is self._hashed

    @property
    def has_baseline(self) -> bool:
        """Return whether the committed values are known."""
        return self._version_sum is not None

    def bind(
        self, optimizers: Sequence[torch.optim.Optimizer], parameters: list[torch.Tensor]
    ) -> None:
        """Watch these from the next `rebaseline` on."""
        self._optimizers, self._parameters = optimizers, parameters
        self._few = _PrefixSample([parameters[0], parameters[-1]] if parameters else [])
        self._all, self._hashed = _PrefixSample(parameters), _HashSample(parameters)
        self._taken = self._hash_s = None
        self._is_light = sum(each.nbytes for each in parameters) <= LIGHT_BYTES
        self.drop_baseline()

    def drop_baseline(self) -> None:
        """Forget the committed values."""
        self._version_sum = None

    def rebaseline(
        self, *, is_expected: bool = False, is_hashed: bool = False, is_probe: bool = False
    ) -> None:
        """Take the present values for those that were committed.

        With `is_hashed` a change of any byte is seen. With `is_probe` too, but only once a hash
        takes little of the time since the last one. `is_expected` says that equal values will be
        written, or that values are put back; then a change of each parameter is seen at least.
        """
        self._version_sum = sum(map(_version, self._parameters))
        self._states = list(map(_state, self._optimizers))
        self._few.take()
        self._is_expected = is_expected
        self._is_known = is_expected or self.is_usual
        self._quiet_commits += not is_expected
        self._is_due = is_probe or (self._is_due and not is_expected)
        is_recent = self.is_usual and self._quiet_commits < QUIET_COMMITS
        if is_hashed or is_recent or (self._is_due and self._is_cheap()):
            self._take_hash()
            return
        self._taken = self._all if self._is_known else None
        if self._taken is not None:
            self._taken.take()

    def has_changed(self, *, is_close: bool = False) -> bool:
        """Return whether a parameter differs from its committed value.

        With `is_close` also check where torch's counters show no change. This waits for the device.
        """
        if self._version_sum is None:
            return False
        version_sum = sum(map(_version, self._parameters))
        # Loading into an optimizer makes another dict.
        has_loaded = any(map(is_not, map(_state, self._optimizers), self._states))
        if has_loaded or version_sum != self._version_sum:
            may_be_same = self._taken is not None and (self._taken.is_exact or self._is_known)
            is_other = has_loaded or not may_be_same or self.differs()
            self._note_write(is_other or not self._is_expected)
            self._version_sum = version_sum
            return is_other
        is_other = is_close and self.differs()
        self._note_write(is_other)
        return is_other

    def differs(self) -> bool:
        """Return whether parameters are different now, whatever was written to them meanwhile."""
        return self._version_sum is not None and not (self._taken or self._few).is_current()

    def _note_write(self, is_found: bool) -> None:
        if is_found:
            self.is_usual = True
            self._quiet_commits = 0

    def _is_cheap(self) -> bool:
        if self._is_light or self._hash_s is None:
            return True
        return self._hash_s <= SHARE * (self._clock() - self._hashed_at_s)

    def _take_hash(self) -> None:
        self._taken, self._is_due = self._hashed, False
        began_s = self._clock()
        self._hashed.take()
        self._hashed_at_s = self._clock()
        took_s = self._hashed_at_s - began_s
        self._hash_s = took_s if self._hash_s is None else min(took_s, self._hash_s)


class _Sample:
    """Values of some parameters, and the addresses of their memory."""

    @property
    def is_exact(self) -> bool:
        """Return whether each change is seen."""
        return False

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = parameters
        self._row: ByteRow | None = None
        self._views: list[torch.Tensor] = []
        self._addresses: list[int] | None = None
        """Where they were at the last `take`."""

    def take(self) -> None:
        """Take note of the present values."""
        if self._addresses is None or self._now() != self._addresses:
            self._find()
        self._note()

    def is_current(self) -> bool:
        """Return whether all values are still as noted."""
        return self._addresses is not None and self._now() == self._addresses and self._is_noted()

    def _part(self, parameter: torch.Tensor) -> torch.Tensor:
        """Return the elements that are looked at."""
        raise NotImplementedError

    def _note(self) -> None:
        raise NotImplementedError

    def _is_noted(self) -> bool:
        raise NotImplementedError

    def _find(self) -> None:
        here = [memory_of(each) for each in self._parameters]
        # The local tensor of a DTensor is asked for each time: another may be put in its place.
        is_plain = all(a is b for a, b in zip(here, self._parameters, strict=True))
        parameters = self._parameters
        self._now: Callable[[], list[int]] = partial(_places, parameters) if is_plain else self._ask
        self._addresses = self._now()
        self._views = [self._part(each) for each in self._parameters]
        self._row = ByteRow(self._views) if all(map(is_in_a_row, self._views)) else None

    def _ask(self) -> list[int]:
        return _places([memory_of(each) for each in self._parameters])


class _PrefixSample(_Sample):
    """Copies of the first elements."""

    _copies: list[torch.Tensor]

    def _part(self, parameter: torch.Tensor) -> torch.Tensor:
        return _prefix(parameter)

    def _find(self) -> None:
        super()._find()
        self._copies = [] if self._row is not None else list(map(torch.empty_like, self._views))

    def _note(self) -> None:
        if self._row is not None:
            self._row.copied = self._row.read()
        elif self._copies:
            torch._foreach_copy_(self._copies, self._views)

    def _is_noted(self) -> bool:
        if self._row is not None:
            return self._row.is_current()
        return all(
            # As bytes, in which NaN is equal to itself.
            torch.equal(view.contiguous().view(torch.uint8), copied.view(torch.uint8))
            for view, copied in zip(self._views, self._copies, strict=True)
        )


class _HashSample(_Sample):
    """A hash of all bytes of each; of what is on a GPU a sum, which is a number there, and the
    first elements.
    """

    _noted: Sequence[int | torch.Tensor] = ()

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__(parameters)
        self._first = _PrefixSample(parameters)

    @property
    def is_exact(self) -> bool:
        return self._row is not None

    def _part(self, parameter: torch.Tensor) -> torch.Tensor:
        return memory_of(parameter).detach()

    def _note(self) -> None:
        self._noted = self._numbers()
        if not self.is_exact:
            self._first.take()

    def _is_noted(self) -> bool:
        pairs = list(zip(self._noted, self._numbers(), strict=True))
        on_host = [(one, other) for one, other in pairs if isinstance(one, int)]
        if any(one != other for one, other in on_host):
            return False
        waiting = [one != other for one, other in pairs if isinstance(one, torch.Tensor)]
        # One wait for each device, and not for each parameter.
        by_device: dict[torch.device, list[torch.Tensor]] = {}
        for each in waiting:
            by_device.setdefault(each.device, []).append(each)
        if any(bool(torch.stack(each).any()) for each in by_device.values()):
            return False
        return self.is_exact or self._first.is_current()

    def _numbers(self) -> Sequence[int | torch.Tensor]:
        return self._row.hashes() if self._row is not None else placed_numbers_of(self._views)


def _places(tensors: Sequence[torch.Tensor]) -> list[int]:
    return list(map(_address, tensors))


def _prefix(parameter: torch.Tensor) -> torch.Tensor:
    first = memory_of(parameter).detach()
    while first.dim() > 1 and first.numel():
        first = first[0]
    return first.view(-1)[:PREFIX_ELEMENTS] if first.dim() == 1 else first.reshape(-1)

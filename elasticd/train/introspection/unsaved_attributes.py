"""Finds attributes of modules and optimizers that seem to be state, and that no state_dict holds.

A plain attribute (`self.calls += 1` in a `forward`, moments that an optimizer keeps beside its
`state`) is neither put back after a failure nor given to a new rank. Most attributes are no state:
a step writes them and reads them again, as it does with an auxiliary loss. So an attribute is
reported only if a step seems to make it of what the step before left there:

- an integer that grows or shrinks by the same number in each step (a counter);
- a float that does so, or is multiplied by the same number (a schedule);
- a tensor that stays the same object while each step changes its values (an average, moments).

The first commits of a run are looked at, and after the second one only the attributes that have
changed by then; all later commits pay nothing.
"""

import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from elasticd.tensors.local_shard import memory_of

__all__ = ["UnsavedAttributes"]

LOOKS = 5
"""So many commits, one step after the other, must show the same change."""
GIVEN_UP = 20
"""After so many commits nobody looks any more, whether their steps followed each other or not."""
NAMED = 3
"""How many attributes the sentence names."""

_SAVED = frozenset({"_parameters", "_buffers", "state", "param_groups", "defaults"})
_OF_SCHEDULERS = frozenset({"_step_count", "_opt_called"})
"""What a scheduler of torch leaves at its optimizer, and counts anew by itself."""
_Entry = torch.nn.Module | torch.optim.Optimizer
_Look = dict[str, Any]
"""By the path of an attribute: a number, or the identity and the version of a tensor."""


class UnsavedAttributes:
    """The check of one run; `say` gets its sentence."""

    def __init__(self, say: Callable[[str], object] = lambda text: sys.stderr.write(text)) -> None:
        self._say = say
        self._owners: list[tuple[str, Any]] = []
        self._saved: set[int] = set()
        self._looks: list[_Look] = []
        self._last = self._seen = 0
        self.is_done = False
        """True if nobody needs to look any more."""

    def begin(self, entries: Mapping[str, _Entry]) -> None:
        """Begin a generation; `entries` are the modules and optimizers of the state by name."""
        self._owners = [owner for name, entry in entries.items() for owner in _owners(name, entry)]
        self._saved = {id(each) for entry in entries.values() for each in _saved(entry)}
        self._looks = []

    def check(self, step: int) -> None:
        """Check the attributes at the commit of this step."""
        if self.is_done or step == self._last:  # The end of an epoch is a commit without a step.
            return
        self._seen += 1
        if step != self._last + 1:
            self._looks.clear()
        self._last = step
        now = dict(self._attributes())
        if self._looks:
            before = self._looks[-1]
            now = {
                path: now[path] for path, value in before.items() if now.get(path, value) != value
            }
        self._looks.append(now)
        if len(self._looks) == LOOKS:
            self._warn([path for path in now if _is_state([each[path] for each in self._looks])])
        elif (len(self._looks) > 1 and not now) or self._seen == GIVEN_UP:
            self._end()

    def _end(self) -> None:
        self.is_done = True
        self._owners, self._looks, self._saved = [], [], set()

    def _warn(self, paths: Sequence[str]) -> None:
        self._end()
        if paths:
            more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
            self._say(
                f"elasticd: each step changes {', '.join(paths[:NAMED])}{more}, which no "
                "state_dict holds, so a failure neither puts such an attribute back nor gives it "
                "to a new rank. If a step needs what the one before left there, make it a buffer "
                "(register_buffer), a value of State, or part of the class's state_dict.\n"
            )

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        for path, owner in self._owners:
            for name, value in list(vars(owner).items()):
                if name not in _SAVED and name not in _OF_SCHEDULERS:
                    yield from _values(f"{path}.{name}", value, self._saved)


def _owners(path: str, entry: _Entry) -> Iterator[tuple[str, Any]]:
    """Yield what of an entry saves no attributes by itself, with its path."""
    if isinstance(entry, torch.optim.Optimizer):
        if type(entry).state_dict is torch.optim.Optimizer.state_dict:
            yield path, entry
        return
    own = torch.nn.Module.state_dict, torch.nn.Module.get_extra_state
    for name, module in entry.named_modules():
        kind = type(module)
        if (kind.state_dict, kind.get_extra_state) == own and not module._state_dict_hooks:
            yield f"{path}.{name}" if name else path, module


def _saved(entry: _Entry) -> Iterator[torch.Tensor]:
    """Yield the tensors of an entry which its state_dict covers, by another name perhaps."""
    if isinstance(entry, torch.nn.Module):
        yield from entry.parameters()
        yield from entry.buffers()


def _values(path: str, value: Any, saved: Collection[int]) -> Iterator[tuple[str, Any]]:
    """Yield the number or the tensors that an attribute is, or holds in a list or dict."""
    if isinstance(value, torch.Tensor):
        memory = memory_of(value)  # A tensor made in inference mode has no counter.
        if id(value) not in saved and not memory.is_inference():
            yield path, (id(value), memory._version)
    elif type(value) in (int, float):
        yield path, value
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            if isinstance(each, torch.Tensor):
                yield from _values(f"{path}[{index}]", each, saved)
    elif isinstance(value, dict):
        for key, each in list(value.items()):
            if isinstance(each, torch.Tensor) and not isinstance(key, torch.Tensor):
                yield from _values(f"{path}[{key!r}]", each, saved)


def _is_state(found: Sequence[Any]) -> bool:
    """Return whether an attribute that was this at one commit after the other seems to be state."""
    if len({type(each) for each in found}) > 1:
        return False
    if isinstance(found[0], tuple):
        return len({each[0] for each in found}) == 1 and _grows([each[1] for each in found])
    return _is_series(found)


def _grows(versions: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(versions))


def _is_series(numbers: Sequence[Any]) -> bool:
    """Return whether each number is the one before plus the same, or times the same."""
    pairs = list(pairwise(numbers))
    changes = [after - before for before, after in pairs]
    if not all(changes) or not all(map(math.isfinite, changes)):
        return False
    if len(set(changes)) == 1:
        return True
    if isinstance(numbers[0], int):
        return False
    factors = [after / before if before else math.nan for before, after in pairs]
    return any(
        all(math.isclose(each, series[0], rel_tol=1e-6) for each in series)
        for series in (changes, factors)
    )

"""Copies at each commit the values that no optimizer owns; a repeated step begins with them.

Buffers change in every forward pass, schedulers and plain values whenever the script likes. If a
rank is interrupted in the middle of a step, these are half changed and the parameters untouched.

Small tensors are copied at every commit, in one call for each kind; torch's version counters
cannot be trusted for them (BatchNorm's running statistics change without being counted). Large ones
(frozen parameters, an averaged model, a queue) are copied once they change (`large_copy.py`).

The work of every step is done here, by C functions that were bound when the world was entered.
Other files do the rest: values that are not plain, or have moved since the last commit.
"""

import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter, is_not, methodcaller
from typing import Any, NamedTuple

import torch

from elasticd.errors import CallError, InvariantBroken
from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.moment_memory import MomentMemory
from elasticd.tensors.tied_tensors import tensors_within
from elasticd.tensors.value_copy import Copies, ValueCopy, check_keys, copy_value, restored
from elasticd.train.optimizer.grad_scaler import ScalerState
from elasticd.train.optimizer.optimizer_undo import parameters_of
from elasticd.train.optimizer.param_groups import GroupValues
from elasticd.train.optimizer.scheduler_state import SchedulerState
from elasticd.train.state.entry import check_apart
from elasticd.train.state.flat_copy import FlatCopy, HostRow, bundled
from elasticd.train.state.large_copy import LargeCopy, TensorSlot, early, put_tensor_back, size_of
from elasticd.train.state.module_mode import ModuleModes
from elasticd.train.state.optimizer_load import own_groups_and_types

__all__ = ["CollectedValues", "CommitCopy", "GradientMark"]

SMALL_BYTES = 1 << 16
"""The size at which a copy begins to cost more than a look whether it is needed."""

_SCALARS = frozenset({int, float, bool, str, type(None)})
"""The types of values that nobody can change."""

_CHANGEABLE = frozenset({list, dict})
"""The types of values of which two may be one; within others only some commits look."""

_get = dict.get
_copy = methodcaller("copy")
_address = torch.Tensor.data_ptr
_kind = attrgetter("dtype", "shape")
_is_contiguous = torch.Tensor.is_contiguous
_has_constants = attrgetter("is_constant")
_END = object()
"""Stands between the parts of one parameter group, and in none of them."""


class KeptGroups(NamedTuple):
    """The values of all parameter groups, and the dicts from which they were read."""

    values: list[GroupValues]
    parts: list[object]


class CollectedValues(NamedTuple):
    """The values collected of a state, before they replace those of the commit before."""

    values: ValueCopy
    objects: dict[str, ValueCopy]
    extras: list[ValueCopy]
    groups: KeptGroups


class CommitCopy:
    """The copies of one state; there are none until the first `copy`."""

    def __init__(self) -> None:
        self.gradients = GradientMark()
        self._kept: CollectedValues | None = None
        self._commits = 0
        self._large: LargeCopy | None = None
        self._copies = Copies()
        self._copy_of = self._copies.of
        self.bind({}, {}, (), ())

    def bind(
        self,
        values: dict[str, Any],
        objects: Mapping[str, Any],
        modules: Iterable[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        wrappers: Container[str] = (),
    ) -> None:
        """Find the values to copy, and forget the copies so far.

        Args:
            values: the dict of the plain values; `put_back` writes into it.
            objects: what has state_dict and load_state_dict, by names.
            modules: their buffers, and the parameters that no optimizer owns, are copied.
            optimizers: what they own is left out.
            wrappers: the names of those objects whose state covers an optimizer's.
        """
        self.forget()
        self._values = values
        self._objects = objects
        self._optimizers = optimizers
        self._moments = MomentMemory(optimizers)
        self._wrappers = wrappers
        self._schedulers = {
            name: each.scheduler
            for name, each in objects.items()
            if isinstance(each, SchedulerState) and each.is_plain and name not in wrappers
        }
        self._scalers = [each for each in objects.values() if isinstance(each, ScalerState)]
        self._owned = {
            id(tensor) for each in optimizers for group in each.param_groups
            for tensor in group["params"]
        }  # fmt: skip
        every = list({id(part): part for module in modules for part in module.modules()}.values())
        self._extras = [
            part for part in every
            if type(part).get_extra_state is not torch.nn.Module.get_extra_state
        ]  # fmt: skip
        self._modes = ModuleModes(every)
        slots = _slots(every, self._owned)
        small = [slot for slot in slots if _is_small(slot.home[slot.key])]
        self._small = _Small(small)
        large = [slot for slot in slots if not _is_small(slot.home[slot.key])]
        buffers = {id(each) for part in every for each in part._buffers.values()}
        volatile = self._large.volatile() if self._large is not None else {}
        self._large = LargeCopy(large, volatile, early(large, buffers))

    def forget(self) -> None:
        """Drop the copies, because the present values count."""
        self._kept = None

    def has_updated_scaler(self) -> bool:
        """Return whether a GradScaler has made or skipped a step since the last commit."""
        return any(each.has_updated() for each in self._scalers)

    def groups(self, check: Callable[[], None] | None = None) -> KeptGroups:
        """Return the values of all parameter groups; those of the last copy if nothing changed.

        `check` is called if something changed, and may refuse the change.
        """
        parts = _parts(self._optimizers)
        if self._kept is not None:
            kept = self._kept.groups
            # They seldom change: mostly all that they consist of are the very same objects.
            is_same = len(parts) == len(kept.parts) and not any(map(is_not, parts, kept.parts))
            if is_same and all(map(_has_constants, kept.values)):
                return kept
        if check is not None:
            check()
        return KeptGroups([GroupValues(each) for each in self._optimizers], parts)

    def collect(self, groups: KeptGroups | None = None) -> CollectedValues:
        """Ask all entries for their state, and change nothing.

        `groups` is what the method `groups` has just returned. An exception of the script's own
        state_dict is passed on.
        """
        keep, objects = self._copy_of, {}
        for name, each in self._objects.items():
            if name in self._schedulers:  # Its state is its attributes, which are read here.
                state = vars(self._schedulers[name]).copy()
                state.pop("optimizer", None)
                if _own_lists(state):
                    objects[name] = state
                    continue
            live = self._live() if name in self._wrappers else self._owned
            objects[name] = copy_value(each.state_dict(), live, keep)
        extras = self._extras and [
            copy_value(part.get_extra_state(), (), keep) for part in self._extras
        ]
        values = self._values.copy()  # Last, because a state_dict of the script may write one.
        changeable = [id(each) for each in values.values() if type(each) in _CHANGEABLE]
        if len(changeable) > len(set(changeable)):
            check_apart(self._values)
        if not _own_lists(values):
            check_keys(self._values)
            values = copy_value(self._values, self._owned, self._copy_of_value)
        return CollectedValues(values, objects, extras, self.groups() if groups is None else groups)

    def copy(self, kept: CollectedValues, *, is_waiting: bool = False) -> None:
        """Make the copies; `kept` is what `collect` has just returned.

        `is_waiting` says that no optimizer has used the present gradients, so they are not marked.
        """
        self._commits += 1
        if not is_waiting:
            self.gradients.set()
        assert self._large is not None
        # torch.no_grad() does the same, and takes as long as a copy of two BatchNorms' buffers.
        has_grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            self._small.copy()
            # A sum over a large tensor is cheap because it is made ever more seldom.
            if self._large.has_any:
                self._large.copy(is_probe=self._commits & (self._commits - 1) == 0)
            if self._copies.is_used:
                self._copies.commit()
        finally:
            torch._C._set_grad_enabled(has_grad)
        modes = self._modes
        modes.modes, modes.trained = list(modes.look()), list(modes.ask())
        self._kept = kept

    @torch.no_grad()
    def put_back(self) -> bool:
        """Restore everything to the last `copy`; the caller may repeat this.

        Returns False if something changed of which there was no copy yet.
        """
        if self._kept is None:
            return True
        assert self._large is not None
        values, objects, extras, groups = self._kept
        self._small.put_back()
        is_complete = self._large.put_back()
        for each in groups.values:
            each.put_back()
        with own_groups_and_types(self._optimizers):
            for name, state in objects.items():
                self._objects[name].load_state_dict(restored(state))
        for part, state in zip(self._extras, extras, strict=True):
            part.set_extra_state(restored(state))
        self._values.update(restored(values))
        self._modes.put_back()
        return is_complete

    def _live(self) -> set[int]:
        """Return the ids of tensors that optimizers own, which a wrapper's state shows again."""
        return self._owned | {
            id(tensor)
            for each in self._optimizers
            for entry in each.state.values()
            for tensor in (entry.values() if isinstance(entry, dict) else ())
            if isinstance(tensor, torch.Tensor)
        }

    def _copy_of_value(self, tensor: torch.Tensor) -> object:
        if tensor.requires_grad and not tensor.is_leaf:
            raise CallError("A value of the state has the graph of a backward pass.")
        # What shares memory as a world begins does so from the script's beginning, on each rank.
        is_new = self._kept is not None and not self._copies.has(tensor)
        copied = self._copy_of(tensor)
        if is_new and (owner := self._moments.owner_of(tensor)):
            every = (row for name in self._values for row in self._places(name))
            path = next((path for path, each in every if each is tensor), "A value of the state")
            raise CallError(
                f"{path} is in the memory of the {owner}, and would have memory of its own on a "
                "new rank: keep a clone() of it in the state, or read it in the optimizer."
            )
        return copied

    def _places(self, name: str) -> Iterable[tuple[str, torch.Tensor]]:
        return tensors_within(f"state.{name}", self._values[name])


class _Small:
    """Tensors that are copied at every commit, whether they changed or not."""

    def __init__(self, slots: list[TensorSlot]) -> None:
        self._homes = [slot.home for slot in slots]
        self._keys = [slot.key for slot in slots]
        self._tensors: list[torch.Tensor | None] = []
        self._host = HostRow([])
        self._bundles: list[FlatCopy] = []

    def copy(self) -> None:
        tensors = list(map(_get, self._homes, self._keys))
        is_same = len(tensors) == len(self._tensors) and not any(
            map(is_not, tensors, self._tensors)
        )
        if not is_same or not self._has_copied():
            self._take_memory(tensors)  # Or one of them has another shape or place now.
            if not self._has_copied():
                raise InvariantBroken("small tensors could not be copied to memory of their shapes")

    def put_back(self) -> None:
        for home, key, tensor in zip(self._homes, self._keys, self._tensors, strict=True):
            home[key] = tensor
        for original, copied in chain(self._host.pairs(), *(e.pairs() for e in self._bundles)):
            put_tensor_back(original, copied)

    def _has_copied(self) -> bool:
        """Copy the tensors; return False if one has changed since the memory was taken."""
        host = self._host
        # `tensor.data = x` and `resize_` move the same object, or change its dtype or shape.
        if (
            list(map(_address, host.tensors)) != host.addresses
            or list(map(_kind, host.tensors)) != host.kinds
            or not all(map(_is_contiguous, host.tensors))
        ):
            return False
        host.row.copied = host.row.read()
        return all(map(_copy, self._bundles))

    def _take_memory(self, tensors: list[torch.Tensor | None]) -> None:
        self._tensors = tensors
        once = {id(tensor): tensor for tensor in tensors if tensor is not None}
        self._host, self._bundles = bundled(list(once.values()))


def _parts(optimizers: Iterable[torch.optim.Optimizer]) -> list[object]:
    """Return all parts of the parameter groups, to be compared one by one."""
    found: list[object] = []
    for optimizer in optimizers:
        found.append(optimizer)
        for group in optimizer.param_groups:
            found += (group, *group, _END, *group.values(), _END, *group["params"], _END)
    return found


def _own_lists(state: dict[str, Any]) -> bool:
    """Copy the lists in a dict that is a copy itself; a scheduler changes nothing else.

    Returns False if this dict has other values that change.
    """
    for key, item in state.items():
        kind = type(item)
        if kind not in _SCALARS:
            if kind is not list or not _SCALARS.issuperset(map(type, item)):
                return False
            state[key] = item.copy()
    return True


def _slots(parts: Iterable[torch.nn.Module], owned: set[int]) -> list[TensorSlot]:
    """Return all places of tensors; one tensor may have several, and the script may refill one."""
    found: list[TensorSlot] = []
    for part in parts:
        for home in (part._buffers, part._parameters):
            for key, tensor in home.items():
                if id(tensor) not in owned:
                    # Only the local part of a sharded tensor is copied.
                    here = tensor if tensor is None else memory_of(tensor)
                    found.append(TensorSlot(home if here is tensor else {key: here}, key))
    return found


def _is_small(tensor: torch.Tensor | None) -> bool:
    return tensor is None or size_of(tensor) <= SMALL_BYTES


class GradientMark:
    """Whether a backward pass came since the last commit that counted, as one parameter shows.

    At the end of an epoch most scripts still have gradients, since they clear them at the beginning
    of a step. If the gradients equal those of the last commit, they were used; gradients added
    since wait for a step.
    """

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

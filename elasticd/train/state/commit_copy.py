"""Copies at each commit what no optimizer owns, and puts it back when a step is done again.

Buffers change in every forward pass, schedulers and plain values whenever the script likes. A rank
that is interrupted in the middle of a step has them half changed, with untouched parameters.

Small tensors are copied at every commit, in one call for each kind; torch's version counters
cannot be trusted for them (BatchNorm's running statistics change without being counted). Large ones
(frozen parameters, an averaged model, a queue) are copied once they change: by the counter, or,
because `tensor.data` passes the counter by, by a checksum at the commits 1, 2, 4, 8, ...
Buffers are copied before, up to a limit: a forward pass may change one for the first time (a queue
that is used from some epoch on), and then waits for the others in its backward pass, so that all
ranks would be without their state at once.
Rejected: a copy of all from the start, which would double the memory of a frozen backbone.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import attrgetter, is_not, methodcaller
from typing import Any, NamedTuple

import torch

from elasticd.errors import InvariantBroken
from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.value_copy import Copies, ValueCopy, check_keys, copy_value, restored
from elasticd.train.optimizer.grad_scaler import ScalerState
from elasticd.train.optimizer.param_groups import GroupValues
from elasticd.train.state.flat_copy import FlatCopy, bundled
from elasticd.train.state.module_mode import ModuleModes
from elasticd.train.state.optimizer_load import own_groups_and_types

__all__ = ["CommitCopy", "CollectedValues"]

SMALL_BYTES = 1 << 16
"""The size at which a copy begins to cost more than a look whether it is needed."""

EARLY_BYTES = 64 << 20
"""Of so many bytes of large buffers there is a copy before they were seen to change."""

_get = dict.get
_copy = methodcaller("copy")
_version = attrgetter("_version")


class TensorSlot(NamedTuple):
    """The place of a tensor: a key in a module's own dict of buffers or parameters."""

    home: Any
    key: str


class CollectedValues(NamedTuple):
    """The values collected of a state, before they replace those of the commit before."""

    values: ValueCopy
    objects: dict[str, ValueCopy]
    extras: list[ValueCopy]
    groups: list[GroupValues]


class CommitCopy:
    """The copies of one state; there are none until the first `copy`."""

    def __init__(self) -> None:
        self._kept: CollectedValues | None = None
        self._commits = 0
        self._large: _Large | None = None
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
        """Find what is to be copied, and forget the copies so far.

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
        self._wrappers = wrappers
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
        restless = self._large.restless() if self._large is not None else {}
        self._large = _Large(large, restless, _early(large, buffers))

    def forget(self) -> None:
        """Drop the copies, because what is there now counts."""
        self._kept = None

    def has_updated_scaler(self) -> bool:
        """Return whether a GradScaler has made or skipped a step since the last commit."""
        return any(
            isinstance(each, ScalerState) and each.has_updated() for each in self._objects.values()
        )

    def groups(self, check: Callable[[], None] | None = None) -> list[GroupValues]:
        """Return the values of all parameter groups; those of the last copy if nothing changed.

        `check` is called if something changed, and may refuse the change.
        """
        groups = self._kept.groups if self._kept is not None else []
        if len(groups) == len(self._optimizers) and all(each.is_current() for each in groups):
            return groups
        if check is not None:
            check()
        return [GroupValues(each) for each in self._optimizers]

    def collect(self, groups: list[GroupValues] | None = None) -> CollectedValues:
        """Ask all entries for their state, and change nothing.

        `groups` is what the method `groups` has just returned. An exception of the script's own
        state_dict is passed on.
        """
        if self._values:
            check_keys(self._values)
        keep, objects = self._copy_of, {}
        for name, each in self._objects.items():
            live = self._live() if name in self._wrappers else self._owned
            objects[name] = copy_value(each.state_dict(), live, keep)
        extras = self._extras and [
            copy_value(part.get_extra_state(), (), keep) for part in self._extras
        ]
        values = copy_value(self._values, self._owned, keep) if self._values else {}
        return CollectedValues(values, objects, extras, self.groups() if groups is None else groups)

    def copy(self, kept: CollectedValues) -> None:
        """Make the copies; `kept` is what `collect` has just returned."""
        self._commits += 1
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
        self._modes.copy()
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
        is_whole = self._large.put_back()
        for each in groups:
            each.put_back()
        with own_groups_and_types(self._optimizers):
            for name, state in objects.items():
                self._objects[name].load_state_dict(restored(state))
        for part, state in zip(self._extras, extras, strict=True):
            part.set_extra_state(restored(state))
        self._values.update(restored(values))
        self._modes.put_back()
        return is_whole

    def _live(self) -> set[int]:
        """Return the ids of tensors that optimizers own, which a wrapper's state shows again."""
        return self._owned | {
            id(tensor)
            for each in self._optimizers
            for entry in each.state.values()
            for tensor in entry.values()
            if isinstance(tensor, torch.Tensor)
        }


class _Small:
    """Tensors that are copied at every commit, whether they changed or not."""

    def __init__(self, slots: list[TensorSlot]) -> None:
        self._homes = [slot.home for slot in slots]
        self._keys = [slot.key for slot in slots]
        self._tensors: list[torch.Tensor | None] = []
        self._bundles: list[FlatCopy] = []

    def copy(self) -> None:
        tensors = list(map(_get, self._homes, self._keys))
        if len(tensors) != len(self._tensors) or any(map(is_not, tensors, self._tensors)):
            self._take_memory(tensors)
        if not all(map(_copy, self._bundles)):
            self._take_memory(tensors)  # One of them has another shape now.
            if not all(map(_copy, self._bundles)):
                raise InvariantBroken("small tensors could not be copied to memory of their shapes")

    def put_back(self) -> None:
        for home, key, tensor in zip(self._homes, self._keys, self._tensors, strict=True):
            home[key] = tensor
        for bundle in self._bundles:
            for original, copied in bundle.pairs():
                _put_tensor_back(original, copied)

    def _take_memory(self, tensors: list[torch.Tensor | None]) -> None:
        self._tensors = tensors
        once = {id(tensor): tensor for tensor in tensors if tensor is not None}
        self._bundles = bundled(list(once.values()))


class _Large:
    """Tensors that are copied if they changed since the last commit."""

    def __init__(
        self,
        slots: list[TensorSlot],
        restless: Mapping[int, tuple[torch.Tensor, bool]],
        early: set[int],
    ) -> None:
        """Take the slots, and what `restless` of the one before returned for the same tensors;
        `early` are the indices of those to be copied at once.
        """
        self._slots = slots
        self._early = early
        self.has_any = bool(slots)
        here = [id(home.get(key)) for home, key in slots]
        # Not those of objects that are built anew: each generation would keep some more alive.
        self._restless = {each: restless[each] for each in here if each in restless}
        self._tensors: list[torch.Tensor | None] = [None] * len(slots)
        self._versions: list[int] = [-1] * len(slots)
        self._copies: list[torch.Tensor | None] = [None] * len(slots)
        self._sums: list[int | None] = [None] * len(slots)
        self._secret = {
            index for index, each in enumerate(here) if each in restless and restless[each][1]
        }
        """The indices of tensors that change without their version counter."""
        self._ages = [0] * len(slots)
        """How many commits ago each copy was made."""
        self._repeated: set[int] = set()
        """The indices of places whose tensor stands in one before, which is the one copied."""
        self._is_probed = False
        self._is_new = True

    def restless(self) -> dict[int, tuple[torch.Tensor, bool]]:
        """Return the tensors, by their ids, that have changed and probably will again; True for
        those that change without their version counter.
        """
        pairs = zip(self._tensors, self._copies, strict=True)
        now = {
            id(tensor): (tensor, index in self._secret)
            for index, (tensor, copied) in enumerate(pairs)
            if tensor is not None and copied is not None
        }
        return self._restless | now

    def copy(self, *, is_probe: bool) -> None:
        tensors = [home.get(key) for home, key in self._slots]
        versions = [-1 if tensor is None else _version_of(tensor) for tensor in tensors]
        changed = {
            index
            for index, tensor in enumerate(tensors)
            if versions[index] != self._versions[index] or tensor is not self._tensors[index]
        }
        if any(map(is_not, tensors, self._tensors)):
            changed |= self._repeated
            seen: dict[int, int] = {}
            every = enumerate(tensors)
            self._repeated = {at for at, each in every if seen.setdefault(id(each), at) != at}
        if is_probe:
            self._probe(tensors, changed)
        self._is_probed = is_probe
        if self._is_new:
            known = {index for index in changed if id(tensors[index]) in self._restless}
            changed = known | self._early
            self._is_new = False
        self._look_at_copies(tensors, changed)
        for index in (changed | self._secret) - self._repeated:
            self._copies[index] = _copy_of(tensors[index], self._copies[index])
            self._ages[index] = 0
        self._tensors, self._versions = tensors, versions

    def put_back(self) -> bool:
        is_whole = True
        for index, (home, key) in enumerate(self._slots):
            tensor, copied = self._tensors[index], self._copies[index]
            home[key] = tensor
            if tensor is None or index in self._repeated:
                continue
            if copied is not None:
                _put_tensor_back(tensor, copied)
                self._versions[index] = _version_of(tensor)
            elif _version_of(tensor) != self._versions[index] or (
                self._is_probed and _sum_of(tensor) != self._sums[index]
            ):
                is_whole = False
        return is_whole

    def _look_at_copies(self, tensors: list[torch.Tensor | None], changed: set[int]) -> None:
        """Find those that have changed since their copy was made, though nothing was counted.

        To put such a copy back would undo commits. It is looked for ever more seldom.
        """
        for index, (tensor, copied) in enumerate(zip(tensors, self._copies, strict=True)):
            if tensor is None or copied is None or index in changed or index in self._secret:
                continue
            self._ages[index] = age = self._ages[index] + 1
            if age & (age - 1) == 0 and _sum_of(tensor) != _sum_of(copied):
                self._secret.add(index)

    def _probe(self, tensors: list[torch.Tensor | None], changed: set[int]) -> None:
        for index, tensor in enumerate(tensors):
            if tensor is None or index in self._secret:
                continue
            before, self._sums[index] = self._sums[index], _sum_of(tensor)
            if index not in changed and before is not None and before != self._sums[index]:
                self._secret.add(index)


def _slots(parts: Iterable[torch.nn.Module], owned: set[int]) -> list[TensorSlot]:
    """Return all places; a tensor may stand in several, of which the script may fill one anew."""
    found: list[TensorSlot] = []
    for part in parts:
        for home in (part._buffers, part._parameters):
            for key, tensor in home.items():
                if id(tensor) not in owned:
                    # Only the local part of a sharded tensor is copied.
                    here = tensor if tensor is None else memory_of(tensor)
                    found.append(TensorSlot(home if here is tensor else {key: here}, key))
    return found


def _early(slots: list[TensorSlot], buffers: set[int]) -> set[int]:
    """Return the indices of the buffers that are copied before they were seen to change."""
    found: set[int] = set()
    left = EARLY_BYTES
    for index, (home, key) in enumerate(slots):
        tensor = home[key]
        if id(tensor) in buffers and tensor.nbytes <= left:
            found.add(index)
            left -= tensor.nbytes
    return found


def _is_small(tensor: torch.Tensor | None) -> bool:
    return tensor is None or tensor.nbytes <= SMALL_BYTES


def _copy_of(tensor: torch.Tensor | None, memory: torch.Tensor | None) -> torch.Tensor | None:
    if tensor is None:
        return None
    if memory is None or memory.shape != tensor.shape or memory.dtype != tensor.dtype:
        return tensor.detach().clone()
    return memory.copy_(tensor)


def _put_tensor_back(tensor: torch.Tensor, copied: torch.Tensor) -> None:
    try:
        if tensor.shape == copied.shape:
            tensor.copy_(copied)
            return
    except RuntimeError:  # Expanded memory, which cannot be written to.
        pass
    tensor.data = copied.clone()


def _version_of(tensor: torch.Tensor) -> int:
    # A tensor made in inference mode has no counter, and nothing outside of that mode changes it.
    return 0 if tensor.is_inference() else _version(tensor)


def _sum_of(tensor: torch.Tensor) -> int:
    """Return a checksum that nearly every change of the values changes; it waits for the device."""
    flat = tensor.detach().contiguous().flatten().view(torch.uint8)
    words = flat[: flat.numel() // 8 * 8].view(torch.int64)
    return int(words.sum()) + int(flat[words.nbytes :].sum())

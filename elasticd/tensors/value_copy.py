"""Copies a value so that the copy stays while the original changes, and restores it.

`copy.deepcopy` would copy tensors that an optimizer owns, and takes ten times as long for the small
dicts of numbers of which schedulers consist: this runs at every commit.
"""

import copy
from collections import Counter, OrderedDict
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import torch

from elasticd.errors import CallError
from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.tensor_bytes import write_into
from elasticd.tensors.tree import check_tensor

__all__ = ["Copies", "ValueCopy", "check_keys", "is_constant", "restored", "copy_value"]

_SCALARS = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})
_KEYS = frozenset({int, str})

ValueCopy = Any
"""Plain values are themselves; a tensor is a `_Kept`; lists, tuples and dicts hold snapshots."""


class _Kept:
    """A tensor of the value, and the elements that it had."""

    __slots__ = ("_copy", "_original")

    def __init__(self, original: torch.Tensor) -> None:
        self._original = original
        self._copy = memory_of(original).detach().clone()

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Return whether the memory fits this tensor, which may have got another shape."""
        here = memory_of(tensor)
        return (
            tensor is self._original
            and here.shape == self._copy.shape
            and here.dtype == self._copy.dtype
            and here.device == self._copy.device
        )

    def take(self) -> None:
        """Copy what is in the tensor now."""
        self._copy.copy_(memory_of(self._original))

    def restored(self) -> torch.Tensor:
        """Return the very same tensor if possible, since others may hold it too."""
        with torch.no_grad():
            try:
                write_into(memory_of(self._original), self._copy)
            except RuntimeError:  # It was made another shape, or is of a mode that forbids this.
                return self._copy.clone()
        return self._original


class _Copied:
    """Any other object."""

    __slots__ = ("copy",)

    def __init__(self, original: object) -> None:
        self.copy = copy.deepcopy(original)

    def restored(self) -> object:
        return copy.deepcopy(self.copy)


class _Ordered:
    """An OrderedDict, with the versions of layers that a module's state carries."""

    __slots__ = ("_items", "_metadata")

    def __init__(self, items: dict[Any, ValueCopy], metadata: object) -> None:
        self._items = items
        self._metadata = copy.deepcopy(metadata)

    def restored(self) -> object:
        made: Any = OrderedDict(restored(self._items))
        if self._metadata is not None:
            made._metadata = copy.deepcopy(self._metadata)
        return made


class Copies:
    """The memory for tensors of consecutive snapshots: a large one is allocated once.

    The copies of the last snapshot hold until `commit`: only then are they overwritten.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._found: dict[int, _Kept] = {}
        self.is_used = False
        """There is something to commit."""
        self._again: list[_Kept] = []

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether the last snapshot had this tensor."""
        kept = self._kept.get(id(tensor))
        return kept is not None and kept.is_of(tensor)

    def of(self, tensor: torch.Tensor) -> _Kept:
        """Return the copy of a tensor, which holds its values after `commit`."""
        self.is_used = True
        kept = self._found.get(id(tensor))
        if kept is not None:
            return kept
        kept = self._kept.get(id(tensor))
        if kept is not None and kept.is_of(tensor):
            self._again.append(kept)
        else:
            check_tensor("A tensor of the state", tensor)
            kept = _Kept(tensor)
        self._found[id(tensor)] = kept
        return kept

    def commit(self) -> None:
        """Overwrite the copies of the tensors that were asked for since the last time."""
        for each in self._again:
            each.take()
        self.is_used = bool(self._found)  # The next commit may have to let go of these.
        self._kept, self._found, self._again = self._found, {}, []


def copy_value(
    value: object,
    live: Container[int] = (),
    keep: Callable[[torch.Tensor], object] = _Kept,
) -> ValueCopy:
    """Copy a nested value; tensors whose `id` is in `live` are left for others to restore.

    Raises: CallError: something in it cannot travel to another rank; keys are not looked at.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict or kind is OrderedDict:
        copied = value.copy() if kind is dict else dict(value)  # type: ignore[attr-defined,call-overload]
        for key, item in copied.items():
            inner = type(item)
            if inner in _SCALARS:
                continue
            if inner is list and _SCALARS.issuperset(map(type, item)):
                copied[key] = item.copy()  # As below; what a scheduler has is mostly such lists.
            else:
                copied[key] = copy_value(item, live, keep)
        return copied if kind is dict else _Ordered(copied, getattr(value, "_metadata", None))
    if kind is list:
        if _SCALARS.issuperset(map(type, value)):  # type: ignore[call-overload]
            return value.copy()  # type: ignore[attr-defined]
        return [copy_value(item, live, keep) for item in value]  # type: ignore[attr-defined]
    if kind is tuple:
        if _SCALARS.issuperset(map(type, value)):  # type: ignore[call-overload]
            return value
        return tuple([copy_value(item, live, keep) for item in value])  # type: ignore[attr-defined]
    if isinstance(value, torch.Tensor):
        return value if id(value) in live else keep(value)
    if isinstance(value, np.generic) or kind is Counter or kind is torch.Size:
        return _Copied(value)
    raise CallError(f"The state holds a {kind.__name__}, which cannot be saved or sent.")


def check_keys(value: object) -> None:
    """Refuse a nested value with a key that cannot travel; what has none is looked at in no time.

    Raises:
        CallError: a dict in it has another key than text or a whole number.
    """
    kind = type(value)
    if kind is dict or kind is OrderedDict:
        if not _KEYS.issuperset(map(type, value)):  # type: ignore[call-overload]
            raise CallError("A key in the state is neither text nor a whole number.")
        value = value.values()  # type: ignore[attr-defined]
    elif kind is not list and kind is not tuple:
        return
    if not _SCALARS.issuperset(map(type, value)):  # type: ignore[call-overload]
        for item in value:  # type: ignore[attr-defined]
            if type(item) not in _SCALARS:
                check_keys(item)


def is_constant(value: object) -> bool:
    """Return whether a value cannot change, so that the same object is the same value."""
    return type(value) in _SCALARS or (
        type(value) is tuple and _SCALARS.issuperset(map(type, value))
    )


def restored(kept: ValueCopy) -> Any:
    """Return what the value was, in new containers; it may be called again."""
    kind = type(kept)
    if kind is _Kept or kind is _Copied or kind is _Ordered:
        return kept.restored()
    if kind is dict:
        return {key: restored(item) for key, item in kept.items()}
    if kind is list:
        return [restored(item) for item in kept]
    if kind is tuple:
        return tuple([restored(item) for item in kept])
    return kept

"""A value that stays what it was while the original goes on changing, and its way back.

`copy.deepcopy` would copy tensors that an optimizer owns, and takes ten times as long for the small
dicts of numbers that schedulers consist of: this runs at every commit.
"""

import copy
from collections.abc import Container
from typing import Any

import torch

__all__ = ["Snapshot", "is_constant", "restored", "snapshot"]

_SCALARS = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})

Snapshot = Any
"""Plain values are themselves; a tensor is a `_Kept`; lists, tuples and dicts hold snapshots."""


class _Kept:
    """The tensor that was there, and what was in it."""

    __slots__ = ("copy", "original")

    def __init__(self, original: torch.Tensor) -> None:
        self.original = original
        self.copy = original.detach().clone()

    def restored(self) -> torch.Tensor:
        """The very same tensor where that is possible: others may hold it too."""
        with torch.no_grad():
            try:
                self.original.copy_(self.copy)
            except RuntimeError:  # It was made another shape, or is of a mode that forbids this.
                return self.copy.clone()
        return self.original


class _Copied:
    """Any other object."""

    __slots__ = ("copy",)

    def __init__(self, original: object) -> None:
        self.copy = copy.deepcopy(original)

    def restored(self) -> object:
        return copy.deepcopy(self.copy)


def snapshot(value: object, live: Container[int] = ()) -> Snapshot:
    """Copy a nested value; tensors whose `id` is in `live` are somebody else's to bring back."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        copied = value.copy()  # type: ignore[attr-defined]
        for key, item in copied.items():
            if type(item) not in _SCALARS:
                copied[key] = snapshot(item, live)
        return copied
    if kind is list:
        if _SCALARS.issuperset(map(type, value)):  # type: ignore[call-overload]
            return value.copy()  # type: ignore[attr-defined]
        return [snapshot(item, live) for item in value]  # type: ignore[attr-defined]
    if kind is tuple:
        if _SCALARS.issuperset(map(type, value)):  # type: ignore[call-overload]
            return value
        return tuple([snapshot(item, live) for item in value])  # type: ignore[attr-defined]
    if isinstance(value, torch.Tensor):
        return value if id(value) in live else _Kept(value)
    return _Copied(value)


def is_constant(value: object) -> bool:
    """True for what cannot change, so that the same object is the same value."""
    return type(value) in _SCALARS or (
        type(value) is tuple and _SCALARS.issuperset(map(type, value))
    )


def restored(kept: Snapshot) -> Any:
    """Return what the value was, in containers of its own; may be called again."""
    kind = type(kept)
    if kind is _Kept or kind is _Copied:
        return kept.restored()
    if kind is dict:
        return {key: restored(item) for key, item in kept.items()}
    if kind is list:
        return [restored(item) for item in kept]
    if kind is tuple:
        return tuple([restored(item) for item in kept])
    return kept

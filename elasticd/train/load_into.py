"""Fills the state that a script gave to `load(into=...)`: all of it, in place.

The tensors are filled where they are; every number, text and list that is no tensor is replaced by
that of the checkpoint, since the script has just built its own with initial values: the first
learning rate, epoch 0. If it gives only some of the topmost names, only these are filled. Below
them nothing may be left out: an optimizer without its moments would train on, differently.
"""

from collections.abc import Iterator, MutableMapping
from typing import Any

import torch

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.tensors.local_shard import memory_of
from elasticd.tensors.tensor_bytes import has_room
from elasticd.train.restore.model_match import check_none_odd

__all__ = ["check_fits", "fill"]


def check_fits(name: str, into: MutableMapping[Any, Any], stored: Any, snapshot: Snapshot) -> None:
    """Refuse a state that `fill` could not make equal to what is stored; changes nothing.

    `name` begins every path. In `stored` any tensor stands for one of the checkpoint.

    Raises:
        CannotRestore: the containers differ; names the first ten places.
    """
    if not isinstance(stored, dict):
        check_none_odd([f"{name} is {_kind(stored)} in the checkpoint and a dict here"], snapshot)
    odd: list[str] = []
    for key, own in into.items():
        path = f"{name}.{key}"
        odd += _odd(path, own, stored[key]) if key in stored else [_absent(path)]
    check_none_odd(odd, snapshot)


def fill(into: MutableMapping[Any, Any], stored: Any) -> None:
    """Put into `into`, which fits, what is stored; its tensors have been filled already."""
    for key in into:
        into[key] = _filled(into[key], stored[key])


def _odd(path: str, own: Any, stored: Any) -> Iterator[str]:
    """Return the places in which the two cannot be made equal."""
    if isinstance(stored, torch.Tensor) or isinstance(own, torch.Tensor):
        if not (isinstance(stored, torch.Tensor) and isinstance(own, torch.Tensor)):
            yield f"{path} is {_kind(stored)} in the checkpoint and {_kind(own)} here"
        elif not has_room(memory_of(own)):
            yield (
                f"{path} is expanded here (several of its elements are one in memory, so it cannot "
                "be filled: give its contiguous() copy)"
            )
    elif isinstance(own, dict) and isinstance(stored, dict):
        for key in own.keys() - stored.keys():
            yield _absent(f"{path}.{key}")
        for key, value in stored.items():
            if key in own:
                yield from _odd(f"{path}.{key}", own[key], value)
            elif _has_tensor(value):
                yield _only_there(f"{path}.{key}")
    elif _is_row(own) and _is_row(stored) and len(own) == len(stored):
        for index, pair in enumerate(zip(own, stored, strict=True)):
            yield from _odd(f"{path}[{index}]", *pair)
    elif _has_tensor(own) or _has_tensor(stored):
        yield f"{path} is {_kind(stored)} in the checkpoint and {_kind(own)} here"


def _filled(own: Any, stored: Any) -> Any:
    """Return what replaces `own`: the same object if it can be changed."""
    if isinstance(stored, torch.Tensor):
        return own
    if isinstance(own, dict) and isinstance(stored, dict):
        for key, value in stored.items():
            own[key] = _filled(own[key], value) if key in own else value
        return own
    if not (_is_row(own) and _is_row(stored)):
        return stored
    values = list(stored)
    if len(own) == len(stored):
        values = [_filled(*pair) for pair in zip(own, stored, strict=True)]
    if isinstance(own, list) and isinstance(stored, list):
        own[:] = values
        return own
    return type(stored)(values)


def _has_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, dict):
        return any(map(_has_tensor, value.values()))
    return _is_row(value) and any(map(_has_tensor, value))


def _is_row(value: Any) -> bool:
    return type(value) in (list, tuple)  # Not torch.Size, which is a plain value.


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "a tensor"
    size = f" of {len(value)}" if _is_row(value) else ""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouO' else 'a'} {name}{size}"


def _absent(path: str) -> str:
    return f"{path} is not in the checkpoint"


def _only_there(path: str) -> str:
    return (
        f"{path} is in the checkpoint and not here (an optimizer has its state after its first "
        "step; torch.distributed.checkpoint.state_dict.get_state_dict makes it before)"
    )

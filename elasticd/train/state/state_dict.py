"""Saves an entry's state for another rank, loads it there, and describes its structure.

A process that replaces a rank builds its entries as the script builds them, and the ranks compare
their structures before it gets the state of another one. A buffer that a forward pass registers, a
pruned layer, a module in another type: each trains well, and ends the job with the first failure,
when there is no checkpoint either that the script could load. So a change is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from elasticd.tensors.local_shard import is_distributed, memory_of
from elasticd.tensors.tensor_bytes import has_room
from elasticd.tensors.tree import first_difference
from elasticd.train.data.loader import Loader
from elasticd.train.introspection.structure_change import StructureChanged
from elasticd.train.optimizer.optimizer_undo import parameters_of
from elasticd.train.optimizer.scheduler_state import SchedulerState
from elasticd.train.optimizer.unsupported import check_shapes
from elasticd.train.state.entry import StateEntryKind, unwrapped
from elasticd.train.state.optimizer_load import (
    Hosted,
    fits,
    load_optimizer,
    optimizers_of,
    own_groups_and_types,
)

__all__ = ["built_structure", "described", "load", "load_built", "same_structure", "saved"]

_NAMES = ("the state", "the one that elasticd.run was given")
_BUILT_NAMES = ("the state", "what the functions of `world` have built")


def saved(value: Any) -> Any:
    """Return an entry's state; its tensors are the live ones, not copies."""
    if isinstance(value, LRScheduler):
        return SchedulerState(value).state_dict()
    return (unwrapped(value) if isinstance(value, torch.nn.Module) else value).state_dict()


def load(value: Any, state: Any, is_placed: bool = True, on_host: Hosted = ()) -> Any:
    """Load what `saved` returned, in place if possible; return the entry, or a plain value.

    `is_placed` says that the state's tensors are on the devices on which they were; for `on_host`
    see `kept_on_host`. Tensors of an optimizer's state that have no place become part of it. The
    caller must not change them afterwards.
    """
    if isinstance(value, torch.nn.Module):
        module = unwrapped(value)
        _make_room(module)
        module.load_state_dict(_with_own(module, state))
    elif isinstance(value, torch.optim.Optimizer):
        load_optimizer(value, state, is_placed=is_placed, on_host=on_host)
    elif hasattr(value, "load_state_dict"):
        with own_groups_and_types(optimizers_of(value), on_host=on_host):
            value.load_state_dict(_own(state))
    else:
        return _filled(value, state)
    return value


def load_built(name: str, value: Any, state: Any, on_host: Hosted) -> None:
    """Load into what a function of `world` has built the state of what it had built before.

    Raises: StructureChanged: the two differ in names, types or shapes; what else the load raises is
        passed on.
    """
    try:
        load(value, state, on_host=on_host)
    except (RuntimeError, ValueError, KeyError) as exc:
        names = ("this one", "the one before")
        now, before = tuple(_saved_lines(name, saved(value))), tuple(_saved_lines(name, state))
        if not (difference := first_difference(now, before, names=names)):
            raise
        raise StructureChanged(
            f"What the function State({name}=...) has built for this world cannot take the state "
            f"of what it built for the one before: {difference} Let it build the same names, types "
            "and shapes in each world, and change none of them in train."
        ) from exc


def described(name: str, kind: StateEntryKind, value: Any) -> Iterator[str]:
    """Yield lines on an entry's names, types and shapes; none of it changes in training.

    Raises: CallError: a tensor has no shape.
    """
    if isinstance(value, torch.nn.Module) and kind is StateEntryKind.MODULE:
        check_shapes(name, unwrapped(value))
        yield from _saved_lines(name, unwrapped(value).state_dict())
    elif isinstance(value, torch.optim.Optimizer) and kind is StateEntryKind.OPTIMIZER:
        # An optimizer has no state before its first step.
        yield f"{name} {type(value).__name__} of {len(value.param_groups)} groups"
        for index, tensor in enumerate(parameters_of(value)):
            yield f"{name} parameter {index} {_type_of(tensor)}"
    elif isinstance(value, Loader) and kind is StateEntryKind.LOADER:
        state = value.state_dict()
        # Ranks that have drawn different samples have different selections.
        selection = f", of the selection {state['selection']}" if state["selection"] else ""
        yield f"{name} of {state['length']} samples in batches of {state['batch_size']}{selection}"
    elif kind in (StateEntryKind.SCALER, StateEntryKind.OBJECT):
        yield f"{name} {type(value).__name__}"
    else:
        yield f"{name} {kind}"


def built_structure(built: Mapping[str, Any]) -> tuple[str, ...]:
    """Return such lines on all that functions of `world` have built, by their names."""
    kinds = {
        name: StateEntryKind.MODULE
        if isinstance(value, torch.nn.Module)
        else StateEntryKind.OPTIMIZER
        if isinstance(value, torch.optim.Optimizer)
        else StateEntryKind.OBJECT
        for name, value in built.items()
    }
    return tuple(
        line for name, kind in kinds.items() for line in described(name, kind, built[name])
    )


def same_structure(
    began: tuple[str, ...], now: tuple[str, ...], *, is_built: bool = False
) -> tuple[str, ...]:
    """Return the structure, where it is the one with which the script `began` (if that is known).

    Raises: StructureChanged: it is another one; the message has the first difference.
    """
    if began and began != now:
        difference = first_difference(now, began, names=_BUILT_NAMES if is_built else _NAMES)
        place = "in the function of `world`" if is_built else "before elasticd.run"
        raise StructureChanged(
            f"The structure of the state has changed in train: {difference} A process that "
            "replaces this one would have no place for it: make all buffers, modules and types "
            f"{place} (or a buffer with persistent=False, which no state has)."
        )
    return now


def _saved_lines(name: str, state: Any) -> Iterator[str]:
    """Yield lines on what a module's state_dict has, or how many groups an optimizer's has."""
    for path, each in state.items() if isinstance(state, Mapping) else ():
        if isinstance(each, torch.Tensor):
            yield f"{name}.{path} {_type_of(each)}"
        elif path == "param_groups" and isinstance(each, list | tuple):
            yield f"{name} of {len(each)} groups of {[len(group['params']) for group in each]}"
        else:
            yield f"{name}.{path} {type(each).__name__}"


def _with_own(module: torch.nn.Module, state: Any) -> Any:
    """Put the module's own tensors into a state whose values are in their memory already.

    torch skips the copy of a tensor to itself, but not the copy of its view, so a state that was
    received in place would be written once more.
    """
    if not isinstance(state, dict):
        return state  # The module has a load_state_dict of its own.
    own: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    own.update(module.named_buffers(remove_duplicate=False))
    for name, each in state.items():
        if _is_same(own.get(name), each):
            state[name] = own[name]
    return state


@torch.no_grad()
def _make_room(module: torch.nn.Module) -> None:
    """Give an expanded tensor memory of its own: nothing can be written to it where it is."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.layout is torch.strided and not is_distributed(tensor) and not has_room(tensor):
            tensor.data = tensor.contiguous()


def _is_same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not fits(one, other):
        return False
    here, there = memory_of(one), memory_of(other)
    return here.data_ptr() == there.data_ptr() and here.stride() == there.stride()


def _filled(value: Any, state: Any) -> Any:
    """Return the plain value that was saved, in the tensors of `value` where they fit.

    An optimizer may train these tensors, and the script may hold them.
    """
    if isinstance(value, torch.Tensor) and fits(value, state) and has_room(value):
        with torch.no_grad():
            return value.copy_(state)
    if isinstance(value, dict) and isinstance(state, dict):
        for key in state:
            state[key] = _filled(value.get(key), state[key])
        return state
    if isinstance(value, list | tuple) and type(value) is type(state) and len(value) == len(state):
        return type(value)(map(_filled, value, state))
    return _own(state)


def _own(value: Any) -> Any:
    """Copy the tensors of a nested state, whose memory may belong to something else."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        for key in value:
            value[key] = _own(value[key])
        return value
    if isinstance(value, list | tuple):
        return type(value)(_own(item) for item in value)
    return value


def _type_of(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"

"""The kinds of entries that a `State` may have, and the sentences that refuse others."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

from elasticd.errors import CallError
from elasticd.tensors.tied_tensors import check_leaves
from elasticd.tensors.tree import flatten
from elasticd.train.data.loader import Loader
from elasticd.train.optimizer.unsupported import check_entry

__all__ = [
    "StateEntries",
    "StateEntryKind",
    "check_apart",
    "checked_name",
    "held_optimizers",
    "inner_optimizers",
    "kind_of",
    "not_assignable",
    "plain",
    "unwrapped",
]

RESERVED = frozenset({"step", "epoch", "epochs", "commit", "pause", "seed", "summary"})
_SCALARS = (bool, int, float, str)
_PLAIN = (*_SCALARS, torch.Tensor)
_SEARCH_DEPTH = 3


class StateEntryKind(enum.StrEnum):
    """How an entry is treated."""

    MODULE = "module"
    OPTIMIZER = "optimizer"
    SCALER = "scaler"
    LOADER = "loader"
    OBJECT = "object"
    """Any other object with state_dict and load_state_dict: a scheduler, say."""
    VALUE = "value"
    BUILDER = "builder"
    """A function of `world`; its result is of one of the other kinds."""


_OBJECT_KINDS = frozenset(
    {StateEntryKind.MODULE, StateEntryKind.OPTIMIZER, StateEntryKind.SCALER, StateEntryKind.OBJECT}
)
"""The kinds of entries that are saved by their own state_dict; a loader goes by its ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntries:
    """The entries that a script gives to `State`, sorted by how they are treated."""

    kinds: dict[str, StateEntryKind]
    values: dict[str, Any]
    builders: dict[str, Any]
    objects: dict[str, Any]
    loaders: dict[str, Any]

    @classmethod
    def of(cls, entries: Mapping[str, Any], unnamed: tuple[object, ...]) -> "StateEntries":
        """Sort the entries; `unnamed` came without a name.

        Raises: CallError: an entry has no name, or cannot survive; the message says what to give.
        """
        kinds = kinds_of(entries, unnamed)

        def only(*wanted: StateEntryKind) -> dict[str, Any]:
            return {name: value for name, value in entries.items() if kinds[name] in wanted}

        values = only(StateEntryKind.VALUE)
        return cls(
            kinds=kinds,
            values={name: plain(f"State({name}=...)", value) for name, value in values.items()},
            builders=only(StateEntryKind.BUILDER),
            objects=only(*_OBJECT_KINDS),
            loaders=only(StateEntryKind.LOADER),
        )


def checked_name(name: str) -> str:
    """Return the name of an entry.

    Raises: CallError: `State` needs the name for itself.
    """
    if name in RESERVED or name.startswith("_"):
        raise CallError(
            f"State cannot hold an entry called {name!r}, which it uses itself: choose another "
            f"name than {', '.join(sorted(RESERVED))} and none that starts with an underscore."
        )
    return name


def kinds_of(
    entries: Mapping[str, object], unnamed: tuple[object, ...]
) -> dict[str, StateEntryKind]:
    """Return how the entries that `State` was given are treated; `unnamed` came without a name.

    Raises:
        CallError: one has no name, or one that `State` needs itself, or cannot survive.
    """
    if unnamed:
        raise CallError("State takes its entries by name: State(model=model, optimizer=optimizer).")
    return {name: kind_of(checked_name(name), value) for name, value in entries.items()}


def kind_of(name: str, value: object, *, is_built: bool = False) -> StateEntryKind:
    """Return how an entry is treated; `is_built` says that a function of `world` returned it.

    Raises:
        CallError: the entry cannot survive; the message says what to give instead.
    """
    kind = _kind_of(name, value, is_built=is_built)
    if is_built and kind in (StateEntryKind.VALUE, StateEntryKind.BUILDER):
        raise CallError(
            f"The function State({name}=...) returned a {type(value).__name__}, which has no state "
            "to bring over: build it inside train."
        )
    return kind


def _kind_of(name: str, value: object, *, is_built: bool) -> StateEntryKind:
    if isinstance(value, type):
        raise CallError(
            f"State({name}=...) is the class {value.__name__}: give an object of it, or a function "
            "of `world` that returns one."
        )
    if not is_built and isinstance(value, DistributedDataParallel | DataParallel):
        raise CallError(
            f"State({name}=...) is wrapped in {type(value).__name__}, which belongs to one process "
            "group: give State the model itself and wrap it inside train."
        )
    check_entry(name, value)
    if isinstance(value, torch.nn.Module):
        return StateEntryKind.MODULE
    if isinstance(value, torch.optim.Optimizer):
        return StateEntryKind.OPTIMIZER
    if isinstance(value, torch.amp.GradScaler):
        return StateEntryKind.SCALER
    if isinstance(value, Loader):
        return StateEntryKind.LOADER
    has = [callable(getattr(value, method, None)) for method in ("state_dict", "load_state_dict")]
    if all(has):
        return StateEntryKind.OBJECT
    if any(has):
        there, missing = ("state_dict", "load_state_dict")[:: 1 if has[0] else -1]
        raise CallError(
            f"State({name}=...) is a {type(value).__name__} that has {there} but no {missing}: "
            f"give its class a {missing} too."
        )
    if value is None or isinstance(value, (*_PLAIN, list, tuple, dict, np.generic, np.ndarray)):
        return StateEntryKind.VALUE
    if callable(value):
        return StateEntryKind.BUILDER
    raise CallError(
        f"State({name}=...) is a {type(value).__name__}, which cannot be copied to another rank: "
        "give its class state_dict and load_state_dict, or give a function of `world` that builds "
        "it, or plain values (numbers, text, tensors, lists and dicts of them)."
    )


def plain(path: str, value: Any) -> Any:
    """Return a plain value unchanged, and a number of numpy as a number of Python.

    Raises:
        CallError: the value is not plain, or cannot be sent to another rank; the message names the
            place.
    """
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Tensor | list | tuple | dict | np.ndarray):
        flatten(path, value)  # It refuses an array of numpy, with what to give instead.
        check_leaves(path, value)
        return value
    raise CallError(
        f"{path} would be a {type(value).__name__}, which is not a plain value: keep numbers, "
        "text, None, tensors, and lists, tuples and dicts of them in the state."
    )


def check_apart(values: Mapping[str, Any]) -> None:
    """Refuse a list or dict that stands in two places, because a load would make two of it.

    A load fills tensors in their memory, so a tensor may stand in several places.

    Raises: CallError: the message names both places.
    """
    places: dict[int, str] = {}

    def look(path: str, value: Any) -> None:
        if not isinstance(value, list | tuple | dict):
            return
        if not isinstance(value, tuple) and places.setdefault(id(value), path) != path:
            raise CallError(
                f"{path} and {places[id(value)]} are one {type(value).__name__}, which would be "
                "two after a failure: give each its own."
            )
        if isinstance(value, dict):
            for key, item in value.items():
                look(f"{path}.{key}", item)
        else:
            for index, item in enumerate(value):
                look(f"{path}[{index}]", item)

    for name, each in values.items():
        look(f"state.{name}", each)


def not_assignable(name: str, kind: StateEntryKind | None, *, is_own: bool) -> CallError:
    """Return the error for `state.NAME = ...`, where NAME is no plain value of the state."""
    if kind is not None:
        return CallError(
            f"state.{name} is a {kind} and cannot be replaced: only plain values can. Change the "
            "object itself."
        )
    if is_own:
        return CallError(f"state.{name} is elasticd's own and cannot be assigned.")
    return CallError(
        f"state.{name} is not declared: give it a first value in State({name}=...), so that it is "
        "copied to every rank."
    )


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """Return the script's own module inside those of torch.compile and DistributedDataParallel.

    So its state has the same names whether a rank compiled it or not.
    """
    while True:
        if isinstance(module, DistributedDataParallel | DataParallel):
            module = module.module
        elif isinstance(
            inner := vars(module).get("_modules", {}).get("_orig_mod"), torch.nn.Module
        ):
            module = inner
        else:
            return module


def held_optimizers(value: object) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers that an entry holds, which its load may load, too."""
    return tuple(dict.fromkeys(_search(getattr(value, "__dict__", {}), _SEARCH_DEPTH)))


def inner_optimizers(value: object) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers that an entry wraps and whose state it saves.

    A scheduler also holds its optimizer, but does not save it. An optimizer saves the state of
    another one only if the two share it.
    """
    found = held_optimizers(value)
    if isinstance(value, torch.optim.Optimizer):
        return tuple(inner for inner in found if inner is not value and inner.state is value.state)
    is_saved = found and _saves_optimizer(value.state_dict(), _SEARCH_DEPTH)  # type: ignore[attr-defined]
    return found if is_saved else ()


def _search(value: object, depth: int) -> Iterator[torch.optim.Optimizer]:
    if isinstance(value, torch.optim.Optimizer):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _search(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from _search(item, depth - 1)


def _saves_optimizer(value: object, depth: int) -> bool:
    if isinstance(value, Mapping):
        return {"state", "param_groups"} <= value.keys() or (
            depth > 0 and any(_saves_optimizer(item, depth - 1) for item in value.values())
        )
    if depth and isinstance(value, list | tuple):
        return any(_saves_optimizer(item, depth - 1) for item in value)
    return False

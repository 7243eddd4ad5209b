"""Loads the state of an optimizer: in place, each tensor in the type and on the device as saved.

torch's `load_state_dict` casts the floating point tensors of the state to the type of their
parameter. So float32 moments of bfloat16 parameters would become bfloat16, and 8-bit states would
become floating point numbers, but only on the rank that loads. From then on its steps would differ
from those of the rank that gave the state. torch also moves tensors to the device of their
parameter, even those that a script keeps on the host to save the GPU's memory.

It also makes new parameter groups, and another dict for the state. If one optimizer steps another,
the two share their groups, and perhaps the state, before, and would not share them afterwards: what
a scheduler writes to the groups of one would no longer reach the other, and what was loaded into
one would be missing in the other, which makes the step. So each keeps the groups and the dict that
it has, with the values that were saved.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch

from elasticd.errors import CallError
from elasticd.train.device.device import CPU
from elasticd.train.optimizer.optimizer_undo import parameters_of
from elasticd.train.state.entry import held_optimizers

__all__ = [
    "Hosted",
    "fits",
    "is_off_host",
    "kept_on_host",
    "load_optimizer",
    "optimizers_of",
    "own_groups_and_types",
]

Hosted = Sequence[Mapping[str, Any]]
"""What some optimizers keep on the host while their parameters are on another device: for each
optimizer the `names` of its state, with the numbers of the parameters, or with True for all, and
how many `parameters` it has."""


def optimizers_of(entry: object) -> tuple[torch.optim.Optimizer, ...]:
    """Return an entry's optimizers: itself, and those that it holds and may load."""
    own = (entry,) if isinstance(entry, torch.optim.Optimizer) else ()
    return tuple(dict.fromkeys((*own, *held_optimizers(entry))))


def is_off_host(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a parameter is on another device."""
    return any(each.device.type != CPU.type for each in parameters_of(optimizer))


def kept_on_host(optimizers: Iterable[torch.optim.Optimizer]) -> list[dict[str, Any]]:
    """Return the state that these optimizers keep on the host; empty if none keeps any there.

    The state itself is read, since a class with a `state_dict` of its own may save copies.
    """
    found = [
        {"parameters": len(list(parameters_of(each))), "names": _kept(each)} for each in optimizers
    ]
    return found if any(each["names"] for each in found) else []


def load_optimizer(
    optimizer: torch.optim.Optimizer, state: Any, *, is_placed: bool = True, on_host: Hosted = ()
) -> None:
    """Load a state in place, because a compiled or captured step holds its tensors.

    `is_placed` says that the state's tensors are on the devices on which they were; else torch
    chooses the device of all that is not `on_host` (see `kept_on_host`). A tensor that has no place
    yet is not copied, but becomes part of the optimizer's state.

    Raises:
        CallError: the parameter groups differ from those of the saved optimizer.
    """
    before = {key: dict(entry) for key, entry in optimizer.state.items() if isinstance(entry, dict)}
    try:
        # A class with a state_dict of its own may copy what it saves to the host.
        is_live = type(optimizer).state_dict is torch.optim.Optimizer.state_dict
        is_told = is_placed and is_live
        every = optimizers_of(optimizer)
        with own_groups_and_types(every, is_placed=is_told, on_host=on_host):
            optimizer.load_state_dict(state)
    except ValueError as exc:
        raise CallError(
            f"{type(optimizer).__name__} has other parameter groups than on the rank that has the "
            f"state ({exc}): build the optimizer in the same way on each rank."
        ) from exc
    with torch.no_grad():
        for key, entry in optimizer.state.items():
            if not isinstance(entry, dict):
                continue
            for name, value in entry.items():
                old = before.get(key, {}).get(name)
                if isinstance(old, torch.Tensor) and fits(old, value):
                    entry[name] = old.copy_(value)


@contextmanager
def own_groups_and_types(
    optimizers: Iterable[torch.optim.Optimizer], *, is_placed: bool = False, on_host: Hosted = ()
) -> Iterator[None]:
    """Let these optimizers keep groups, devices and the saved types in every load inside.

    `is_placed` says that a tensor that is new here goes to the device on which it was saved. What
    was `on_host` counts for as many optimizers, each of as many parameters; elsewhere nobody knows
    which is which.
    """
    with ExitStack() as hooks:
        every = tuple(dict.fromkeys(optimizers))
        records: Hosted = on_host if len(on_host) == len(every) else [{}] * len(every)
        for optimizer, record in zip(every, records, strict=True):
            has_same_count = record.get("parameters") == len(list(parameters_of(optimizer)))
            names = record["names"] if has_same_count else {}
            for hook in _hooks(optimizer, is_placed, names):
                hooks.callback(hook.remove)
        yield


def fits(old: torch.Tensor, new: Any) -> bool:
    """Return whether `new` is a tensor of the shape, dtype and device of `old`."""
    return (
        isinstance(new, torch.Tensor)
        and old.shape == new.shape
        and old.dtype == new.dtype
        and old.device == new.device
    )


def _kept(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    numbers: dict[str, list[int]] = {}
    counts: Counter[str] = Counter()
    for number, parameter in enumerate(parameters_of(optimizer)):
        entry = optimizer.state.get(parameter)
        if parameter.device.type == CPU.type or not isinstance(entry, dict):
            continue
        for name, value in entry.items():
            # torch has rules of its own for the number of steps.
            if isinstance(value, torch.Tensor) and isinstance(name, str) and name != "step":
                counts[name] += 1
                if value.device.type == CPU.type:
                    numbers.setdefault(name, []).append(number)
    return {name: len(each) == counts[name] or each for name, each in numbers.items()}


def _hooks(
    optimizer: torch.optim.Optimizer, is_placed: bool, on_host: Mapping[str, Any]
) -> Iterator[Any]:
    """Register hooks before and after a load; a script's own optimizer class may not call them."""
    given: list[tuple[dict[str, Any], list[dict[str, Any]], Any]] = []

    def before(_: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        given.append((state, optimizer.param_groups, optimizer.state))

    def after(_: torch.optim.Optimizer) -> None:
        if given:
            state, groups, entries = given.pop()
            _put_types_back(optimizer, state, entries, is_placed, on_host)
            _put_groups_back(optimizer, groups)
            loaded: Any = optimizer.state
            if loaded is not entries:
                entries.clear()
                entries.update(loaded)
                optimizer.state = entries

    # Some wrappers of optimizers lack what the base class makes for hooks.
    if hasattr(optimizer, "_optimizer_load_state_dict_pre_hooks"):
        yield optimizer.register_load_state_dict_pre_hook(before)
        yield optimizer.register_load_state_dict_post_hook(after)


def _put_types_back(
    optimizer: torch.optim.Optimizer,
    given: dict[str, Any],
    before: Any,
    is_placed: bool,
    on_host: Mapping[str, Any],
) -> None:
    """Give the loaded tensors their saved types, and the devices on which they were `before`;
    without one the host if they were there, or those of the saved state if it `is_placed`.
    """
    numbers = chain.from_iterable(group["params"] for group in given["param_groups"])
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    places = {n: (i, each) for i, (n, each) in enumerate(zip(numbers, parameters, strict=True))}
    for number, entry in given["state"].items():
        place, key = places.get(number, (-1, None))
        if key is not None and isinstance(entry, dict):
            loaded = optimizer.state[key] = _typed(optimizer.state[key], entry)
            old = before.get(key) if isinstance(before, dict) else None
            for name, saved in entry.items() if isinstance(loaded, dict) else ():
                here = old.get(name) if isinstance(old, dict) else saved if is_placed else None
                device = here.device if isinstance(here, torch.Tensor) else None
                if not isinstance(old, dict) and _is_among(on_host.get(name), place):
                    device = CPU
                if name in loaded and device is not None:
                    loaded[name] = _moved(loaded[name], saved, device)


def _moved(loaded: Any, saved: Any, device: torch.device) -> Any:
    """Return the loaded value, or the saved one if torch moved it to a device of another type."""
    are_tensors = isinstance(loaded, torch.Tensor) and isinstance(saved, torch.Tensor)
    return saved.to(device) if are_tensors and loaded.device.type != device.type else loaded


def _is_among(numbers: Any, number: int) -> bool:
    return numbers is True or (isinstance(numbers, list) and number in numbers)


@torch.no_grad()
def _put_groups_back(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
    """Write the loaded values into the groups of before, and give those to the optimizer."""
    for group, loaded in zip(groups, optimizer.param_groups, strict=True):
        if loaded is group:
            continue
        for key, value in loaded.items():
            old = group.get(key)
            if isinstance(old, torch.Tensor) and fits(old, value):
                loaded[key] = old.copy_(value)
        for key in group.keys() - {"params"}:
            del group[key]
        group.update(loaded)
    optimizer.param_groups = groups


def _typed(loaded: Any, saved: Any) -> Any:
    """Return the loaded value, with the saved tensors in place of those whose type has changed."""
    if isinstance(saved, torch.Tensor) and isinstance(loaded, torch.Tensor):
        return loaded if loaded.dtype == saved.dtype else saved.to(loaded.device)
    if isinstance(saved, dict) and isinstance(loaded, dict):
        for name, each in saved.items():
            if name in loaded:
                loaded[name] = _typed(loaded[name], each)
        return loaded
    if isinstance(saved, list | tuple) and isinstance(loaded, list | tuple):
        return type(loaded)(map(_typed, loaded, saved))
    return loaded

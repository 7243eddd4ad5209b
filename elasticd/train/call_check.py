"""Checks the arguments of `elasticd.run`, and says in a sentence what to change."""

import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from elasticd.errors import CallError
from elasticd.train.settings import WorkerSettings
from elasticd.train.state.entry import check_apart
from elasticd.train.state.state import State, core_of

__all__ = ["check_call", "check_device"]


def check_call(train: Callable[..., Any], state: State | None, setting: WorkerSettings) -> State:
    """Return the state; raise CallError unless the arguments are valid."""
    if not callable(train):
        raise CallError(
            f"elasticd.run wants a function train(state, world) first, not a "
            f"{type(train).__name__}: write elasticd.run(train, state)."
        )
    if state is None:
        raise CallError(
            "elasticd.run wants an elasticd.State second, which holds what must survive: write "
            "elasticd.run(train, elasticd.State(model=model, optimizer=optimizer))."
        )
    if not isinstance(state, State):
        raise CallError(
            f"elasticd.run wants an elasticd.State second, not a {type(state).__name__}: write "
            "elasticd.run(train, elasticd.State(model=model, optimizer=optimizer, ...))."
        )
    _check_arguments(train)
    _check_body(train)
    if not setting.agent and setting.is_torchrun:
        raise CallError(
            "elasticd.run does not work under torchrun: start the script with elasticd run "
            "(elasticd run takes torchrun's arguments), or with plain python for one process."
        )
    if dist.is_initialized():
        raise CallError(
            "torch.distributed is initialized already: leave out init_process_group, "
            "elasticd.run makes the process group for each world itself."
        )
    if setting.agent and threading.current_thread() is not threading.main_thread():
        raise CallError(
            "elasticd.run was called from a thread: call it from the main thread of the script."
        )
    core = core_of(state)
    check_apart(core.values)
    core.check()  # Something in it may not travel: before it stands in any world.
    return state


def check_device(modules: Iterable[torch.nn.Module], own: torch.device) -> None:
    """Refuse a model that was built on another worker's GPU, as `.cuda()` does.

    Raises:
        CallError: some of it is there.
    """
    for module in modules:
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.device.type == "cuda" and tensor.device != own:
                raise CallError(
                    f"The {type(module).__name__} of the state is on {tensor.device}, and this "
                    f"worker's device is {own}: build it with .to(elasticd.device()), not with "
                    ".cuda()."
                )


def _check_arguments(train: Callable[..., Any]) -> None:
    try:
        inspect.signature(train).bind(None, None)
    except TypeError:
        name = getattr(train, "__name__", "train")
        raise CallError(
            f"elasticd.run calls {name}(state, world), and it takes other arguments: define it as "
            f"def {name}(state, world)."
        ) from None
    except ValueError:
        return  # Some callables of C code do not tell.


def _check_body(train: Callable[..., Any]) -> None:
    """Refuse a call that would return at once, without a step."""
    if any(
        kind(train)
        for kind in (
            inspect.isgeneratorfunction,
            inspect.iscoroutinefunction,
            inspect.isasyncgenfunction,
        )
    ):
        name = getattr(train, "__name__", "train")
        raise CallError(
            f"elasticd.run calls {name}(state, world), and as it is async or has a yield, that "
            "would return before it does anything: define it as an ordinary function."
        )

"""Checks gradients before an optimizer uses them, because one bad batch can end a run of weeks."""

import enum
from collections.abc import Callable
from typing import Any

import torch

from elasticd.tensors.local_shard import memory_of
from elasticd.train.optimizer.optimizer_undo import parameters_of

__all__ = [
    "GradientsNotFinite",
    "OnNan",
    "clear",
    "has_bad",
    "not_finite",
    "with_checked_closure",
]

NAMED = 3
"""How many parameters a message names; a bad loss makes all of them bad."""


class GradientsNotFinite(FloatingPointError):
    """The error of `OnNan` `stop`: it is raised before parameters change, and ends the job."""

    ends_job = True
    """True: the agents end the job instead of replacing the process. The gradients are those of all
    ranks, and the next process would meet the same batch."""


class OnNan(enum.StrEnum):
    """What happens if gradients are infinite or not a number."""

    IGNORE = "ignore"
    """Nothing happens; they are not even looked for."""
    STOP = "stop"
    """The step raises, on each rank that sees them."""
    SKIP = "skip"
    """The optimizer does nothing in this step; the commit counts."""


@torch.no_grad()
def has_bad(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a gradient has an infinite value or NaN; it waits for the device, and for no
    other rank.

    Of a sharded gradient only the part that is here is checked. The greatest magnitude of each
    counts, as a norm could overflow by itself in float16.
    """
    by_place: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for gradient in _gradients(optimizer):
        by_place.setdefault((gradient.device, gradient.dtype), []).append(gradient)
    return any(
        not torch.stack(torch._foreach_norm(gradients, float("inf"))).isfinite().all()
        for gradients in by_place.values()
    )


def with_checked_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], check: Callable[[], None]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of `step` with a closure that checks; None if there is no closure.

    A closure makes gradients, so the collectives come after the step began.
    """
    closure = kwargs.get("closure") or next((each for each in args[1:] if callable(each)), None)
    if closure is None:
        return None

    def guarded(*values: Any, **names: Any) -> Any:
        loss = closure(*values, **names)
        check()
        return loss

    return (
        tuple(guarded if each is closure else each for each in args),
        {name: guarded if each is closure else each for name, each in kwargs.items()},
    )


@torch.no_grad()
def not_finite(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> GradientsNotFinite:
    """Return the error of this step; `names` are by the parameters' ids."""
    return GradientsNotFinite(
        "Gradients are infinite or not a number, and the parameters are as they were before "
        f"this step: {_described(optimizer, names)}."
    )


def _described(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> str:
    bad = []
    total = 0
    for index, parameter in enumerate(parameters_of(optimizer)):
        if parameter.grad is None:
            continue
        total += 1
        if not _values(parameter.grad).isfinite().all():
            bad.append(names.get(id(parameter), f"parameter {index}"))
    if not bad:
        return "in the parts of other ranks"
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return f"{', '.join(bad[:NAMED])}{more} ({len(bad)} of {total})"


def clear(optimizer: torch.optim.Optimizer) -> None:
    """Drop the gradients, so that the optimizer leaves its parameters alone."""
    for parameter in parameters_of(optimizer):
        parameter.grad = None


def _gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    values = [_values(each.grad) for each in parameters_of(optimizer) if each.grad is not None]
    return [each for each in values if each.numel()]


def _values(gradient: torch.Tensor) -> torch.Tensor:
    here = memory_of(gradient)
    return here.coalesce().values() if here.is_sparse else here

"""Reads a GradScaler's state without waiting for the GPU."""

from typing import Any

import torch

__all__ = ["ScalerState", "drop_scale"]

_PASSING = "_per_optimizer_states"
"""What it knows of the gradients of one step; between steps it is empty."""


class ScalerState:
    """Saves and loads as the scaler does, for a copy that stays in the process.

    The scaler's own `state_dict` reads its scale from the device, and so waits for the whole step
    at every commit. Its `load_state_dict` leaves it in the middle of a step where it was
    interrupted between `unscale_` and `update`; it would refuse to unscale the next.
    """

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self._attributes = vars(scaler)
        self._passing: object = self._attributes.get(_PASSING)

    def has_updated(self) -> bool:
        """Return whether a step has ended since the state was asked for, made or skipped."""
        return self._attributes.get(_PASSING) is not self._passing

    def state_dict(self) -> dict[str, Any]:
        self._passing = self._attributes.get(_PASSING)
        return {name: value for name, value in self._attributes.items() if name != _PASSING}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._attributes.update(state)
        self._attributes.get(_PASSING, {}).clear()


def drop_scale(optimizer: torch.optim.Optimizer) -> None:
    """Delete the scale that a GradScaler left on a fused optimizer whose step was interrupted.

    The next step would multiply its scale with the old one.
    """
    if "found_inf" in vars(optimizer):
        for name in ("found_inf", "grad_scale"):
            vars(optimizer).pop(name, None)

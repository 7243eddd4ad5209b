"""Which part of a state an optimizer's undo restores, and which the copies of a commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from elasticd.train.optimizer.grad_scaler import ScalerState
from elasticd.train.optimizer.scheduler_state import SchedulerState
from elasticd.train.state.entry import inner_optimizers, unwrapped

__all__ = ["Ownership"]


@dataclass(slots=True, kw_only=True)
class Ownership:
    """The objects of a state by what restores them; plain values and loaders stand apart."""

    modules: list[torch.nn.Module] = field(default_factory=list)
    optimizers: dict[torch.optim.Optimizer, tuple[torch.optim.Optimizer, ...]] = field(
        default_factory=dict
    )
    """Each optimizer, with others through which the script may step it."""
    others: dict[str, Any] = field(default_factory=dict)
    """Objects that are saved and loaded with their state_dict, by their names."""
    wrappers: set[str] = field(default_factory=set)
    """The names of those of the others whose state covers that of an optimizer."""
    names: dict[int, str] = field(default_factory=dict)
    """The names of parameters by their ids."""

    @classmethod
    def of(cls, objects: Mapping[str, Any]) -> "Ownership":
        """Sort objects by what they are."""
        sorted_ = cls()
        for name, value in objects.items():
            if isinstance(value, torch.nn.Module):
                sorted_._add_module(name, unwrapped(value))
            elif isinstance(value, torch.optim.Optimizer):
                sorted_._add_optimizer(value)
            elif isinstance(value, torch.amp.GradScaler):
                sorted_.others[name] = ScalerState(value)
            else:
                sorted_._add_other(name, value)
        return sorted_

    def _add_module(self, name: str, module: torch.nn.Module) -> None:
        self.modules.append(module)
        for path, parameter in module.named_parameters():
            self.names.setdefault(id(parameter), f"{name}.{path}")

    def _add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        inner = inner_optimizers(optimizer)
        if inner:
            self.optimizers[inner[0]] = (optimizer, *inner[1:])
        else:
            self.optimizers.setdefault(optimizer, ())

    def _add_other(self, name: str, value: Any) -> None:
        self.others[name] = SchedulerState(value) if isinstance(value, LRScheduler) else value
        for inner in inner_optimizers(value):
            self.optimizers.setdefault(inner, ())
            self.wrappers.add(name)

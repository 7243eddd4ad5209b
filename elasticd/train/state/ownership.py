"""Which part of a state an optimizer's undo restores, and which the copies of a commit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from elasticd.tensors.tied_tensors import (
    Place,
    Ties,
    View,
    check_trained,
    retied,
    ties_of,
    trained_places,
)
from elasticd.tensors.tree import flatten
from elasticd.train.optimizer.grad_scaler import ScalerState
from elasticd.train.optimizer.optimizer_undo import parameters_of
from elasticd.train.optimizer.scheduler_state import SchedulerState
from elasticd.train.state.entry import check_apart, inner_optimizers, unwrapped

__all__ = ["Ownership", "TiedEntries"]


@dataclass(slots=True, kw_only=True)
class Ownership:
    """The objects of a state, sorted by what restores them, without plain values and loaders."""

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
        """Sort objects by their kinds."""
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


class TiedEntries:
    """Which entries of a state are one tensor: as the script began, and as it is now.

    The comparison covers plain values, and modules that are not built anew for each world.
    """

    KEYS = "_ties", "_views", "_leaves"
    """What a state has beside its entries if they share otherwise than the script began; older
    versions know nothing of the second one, which has the tensors that overlap, nor of the third
    one, which has the values that require gradients."""

    def __init__(self, values: dict[str, Any], objects: Mapping[str, Any]) -> None:
        self._values, self._objects = values, objects
        self.modules = {
            name: unwrapped(each)
            for name, each in objects.items()
            if isinstance(each, torch.nn.Module)
        }
        self._began: Ties | None = None
        self._places: list[Place] = []

    def bind(self) -> None:
        """Begin a generation: the tensors that optimizers train now stay where they are."""
        self._look()
        self._places = trained_places(self.modules, self._trained)

    def news_of_ties(self) -> dict[str, str]:
        """Return the present ties for another rank; empty if it knows them already.

        Raises: CallError: a module has another tensor in the place of one that is trained, or a
            value has the graph of a backward pass, or one list or dict stands in two places.
        """
        began = self._look()
        check_trained(self._places)
        try:
            now = ties_of(self._values, self.modules, self._trained)
        except (RecursionError, ValueError):
            flatten("state", self._values)  # Its error names a list in itself, say.
            raise
        check_apart(self._values)
        if now == began:
            return {}
        *ties, views, leaves = now
        return dict(zip(self.KEYS, map(json.dumps, (ties, views, leaves)), strict=True))

    def adopt(self, ties: str | None, views: str | None, leaves: str | None) -> bool:
        """Tie the entries as on the rank that sent these; return whether any had to change."""
        wanted = began = self._look()
        if ties is not None:
            shared, trained = json.loads(ties)
            wanted = began._replace(shared=shared, trained=trained)
        if views is not None:
            memories = [[View(*each) for each in memory] for memory in json.loads(views)]
            wanted = wanted._replace(views=memories)
        if leaves is not None:
            wanted = wanted._replace(leaves=json.loads(leaves))
        return retied(self._values, self.modules, self._trained, wanted)

    def adopt_from(self, skeleton: str) -> bool:
        """Tie the entries as in a state that was taken apart (`elasticd.tensors.tree`)."""
        _, node = json.loads(skeleton)
        entries = dict(node["d"])
        return self.adopt(*map(entries.get, self.KEYS))

    def _look(self) -> Ties:
        if self._began is None:
            optimizers = Ownership.of(self._objects).optimizers
            self._trained = {id(each) for lead in optimizers for each in parameters_of(lead)}
            self._began = ties_of(self._values, self.modules, self._trained)
        return self._began

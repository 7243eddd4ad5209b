"""Whether modules train or evaluate, and which parameters are frozen: no state_dict has it.

A rank that is interrupted in an evaluation would train on without dropout, and with the statistics
of BatchNorm standing still. A process that is new has what the script set before `elasticd.run`.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch

__all__ = ["Modes", "adopt_modes", "modes_of"]

_is_training = attrgetter("training")


class Modes:
    """Of modules, as they were at the last commit."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._modules: Sequence[torch.nn.Module] = tuple(modules)
        self._modes: list[bool] = []

    def copy(self) -> None:
        """Note how they are now."""
        self._modes = list(map(_is_training, self._modules))

    def put_back(self) -> None:
        """Make them as they were; without `train()`, which a class may have made its own."""
        for module, is_training in zip(self._modules, self._modes, strict=False):
            module.training = is_training


def modes_of(modules: Mapping[str, torch.nn.Module]) -> dict[str, Any]:
    """Say it of all parts of these modules, JSON-plain."""
    return {
        name: {
            "evaluating": [path for path, part in module.named_modules() if not part.training],
            "frozen": [path for path, each in module.named_parameters() if not each.requires_grad],
        }
        for name, module in modules.items()
    }


def adopt_modes(modules: Mapping[str, torch.nn.Module], said: Mapping[str, Any]) -> None:
    """Make these modules as `modes_of` said of another rank's."""
    for name, module in modules.items():
        evaluating, frozen = set(said[name]["evaluating"]), set(said[name]["frozen"])
        for path, part in module.named_modules():
            part.training = path not in evaluating
        for path, each in module.named_parameters():
            if each.requires_grad is (path in frozen):
                each.requires_grad_(path not in frozen)

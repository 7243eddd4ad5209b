"""Whether modules train or evaluate, and which parameters are frozen; no state_dict holds these.

A rank that is interrupted in an evaluation would train on without dropout, and with the statistics
of BatchNorm standing still; one that is interrupted while the generator of a GAN is trained would
never train the discriminator again. A new process has the modes that the script set before
`elasticd.run`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import torch

__all__ = ["ModuleModes", "adopt_modes", "modes_of"]

_TRAINING = "training"
_requires_grad = attrgetter("requires_grad")


class ModuleModes:
    """The modes of some modules at the last commit."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._modules: Sequence[torch.nn.Module] = tuple(modules)
        # A module looks an attribute up in its class and all base classes first.
        owns = [vars(each) for each in self._modules]
        is_own = all(_TRAINING in each for each in owns)
        self.look: Callable[[], Iterable[bool]] = (
            partial(map, itemgetter(_TRAINING), owns)
            if is_own
            else partial(map, attrgetter(_TRAINING), self._modules)
        )
        """Returns which modules train now; each commit keeps it, in `modes`."""
        every = (each for part in self._modules for each in part._parameters.values())
        parameters = list({id(each): each for each in every if each is not None}.values())
        self._parameters: Sequence[torch.Tensor] = parameters
        self.ask: Callable[[], Iterable[bool]] = partial(map, _requires_grad, parameters)
        """Returns which parameters are trained now."""
        self.modes: Sequence[bool] = ()
        """What `look` returned at the last commit."""
        self.trained: Sequence[bool] = ()
        """What `ask` returned at the last commit."""

    def put_back(self) -> None:
        """Restore the modes, without `train()`, which a class may have overridden."""
        for module, is_training in zip(self._modules, self.modes, strict=False):
            module.training = is_training
        for parameter, is_trained in zip(self._parameters, self.trained, strict=False):
            if parameter.requires_grad is not is_trained:
                parameter.requires_grad_(is_trained)


def modes_of(modules: Mapping[str, torch.nn.Module]) -> dict[str, Any]:
    """Return the modes of all parts of these modules, as plain values for JSON."""
    return {
        name: {
            "evaluating": [path for path, part in module.named_modules() if not part.training],
            "frozen": [path for path, each in module.named_parameters() if not each.requires_grad],
        }
        for name, module in modules.items()
    }


def adopt_modes(modules: Mapping[str, torch.nn.Module], modes: Mapping[str, Any]) -> None:
    """Give these modules the modes that `modes_of` returned on another rank."""
    for name, module in modules.items():
        evaluating, frozen = set(modes[name]["evaluating"]), set(modes[name]["frozen"])
        for path, part in module.named_modules():
            part.training = path not in evaluating
        for path, each in module.named_parameters():
            if each.requires_grad is (path in frozen):
                each.requires_grad_(path not in frozen)

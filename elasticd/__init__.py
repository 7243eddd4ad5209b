"""elasticd keeps a PyTorch training run going while machines come and go.

The names that a training script uses stand here and nothing else. Importing them is cheap: the
command line and the agent import this package too, and torch comes only with the first name that
needs it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elasticd.script.progress import progress
    from elasticd.train.data.loader import Loader
    from elasticd.train.device.device import device
    from elasticd.train.interrupt import Interrupted
    from elasticd.train.run import run
    from elasticd.train.state.state import State
    from elasticd.train.world import World

__all__ = ["Interrupted", "Loader", "State", "World", "__version__", "device", "progress", "run"]

__version__ = "0.1.0"

_HOMES = {
    "Interrupted": "train.interrupt",
    "Loader": "train.data.loader",
    "State": "train.state.state",
    "World": "train.world",
    "device": "train.device.device",
    "progress": "script.progress",
    "run": "train.run",
}
"""The modules in which these names are defined; those of `train` import torch."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'elasticd' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"elasticd.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

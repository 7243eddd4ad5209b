"""Generators seeded from (seed, rank, step), so that a step done again draws what it drew before.

A generator's own state would have to be copied at each commit (5 kB for torch, 2.5 kB for Python)
and would come from a peer where a rank is new. Seeding is shorter, and it is what makes two ranks
of one step differ, as dropout needs it.
"""

import random
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from elasticd.tensors import cuda
from elasticd.train.device.device import device

__all__ = ["mix", "reseed"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, odd: splitmix64's increment (Steele and others, 2014)."""

_torch_generator = torch.default_generator
_python: Any = random.seed.__self__  # type: ignore[attr-defined]
_seed_python = super(random.Random, _python).seed
"""What `random.seed` calls for a whole number, after it has looked at what it was given."""
_has_cuda = cuda.is_used


def mix(first: int, *more: int) -> int:
    """Return 64 bits, from small numbers, in which neighbours have nothing in common
    (splitmix64).
    """
    words = (first, *more)
    state = len(words)
    for word in words:
        state = _stirred(state, word)
    return state


def reseed(prefix: int, step: int) -> None:
    """Seed the generators of torch (CPU and this worker's GPU), Python and numpy, if it is in use.

    `prefix` is what `mix` made of all that stays for a while (seed, rank, epoch); so that the rest
    is a line, because this runs at every commit, in caches that hold the training's data.
    `torch.manual_seed` would do the same to all GPUs of the machine and costs a hundred times as
    much.

    Most of what is left are Python's and numpy's part. To seed only those that were used since the
    last time would spare them, but then what a rank draws first would depend on which step it used
    them in before, and a process that is new to the rank does not know that.
    """
    seed = ((prefix ^ step) * _GOLDEN) & _MASK
    seed ^= seed >> 32
    _torch_generator.manual_seed(seed)
    _seed_python(seed)
    _python.gauss_next = None  # Half a pair that was drawn before; `random.seed` forgets it too.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed & 0xFFFFFFFF)
    else:
        _numpy_import.expect(seed)
    if _has_cuda() and (own := device()).type == "cuda":
        torch.cuda.default_generators[own.index].manual_seed(seed)


class _NumpyImport(MetaPathFinder):
    """Seeds numpy's generator when numpy imports it, which numpy 2 does at its first use.

    Without it a process that uses it for the first time in the middle of a step would draw from a
    generator of its own, and one that repeats the step would draw something else. To import it for
    everybody would cost each commit a seeding for which most scripts have no use.
    """

    def __init__(self) -> None:
        self._seed: int | None = None

    def expect(self, seed: int) -> None:
        """Have it seeded with this, if it is imported before the next call."""
        if self._seed is None:
            sys.meta_path.insert(0, self)
        self._seed = seed

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find `numpy.random` as everybody else does, and have its loader seed it."""
        if name != "numpy.random" or self._seed is None:
            return None
        sys.meta_path.remove(self)
        seed, self._seed = self._seed, None
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_seed(module: ModuleType) -> None:
            execute(module)
            module.seed(seed & 0xFFFFFFFF)

        spec.loader.exec_module = execute_and_seed  # type: ignore[method-assign]
        return spec


_numpy_import = _NumpyImport()


def _stirred(state: int, word: int) -> int:
    state = (state + word + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)

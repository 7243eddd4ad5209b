"""Seeds the generators of random numbers from (seed, rank, epoch, step) at each commit.

So a repeated step draws the same numbers. A generator's own state would have to be copied at each
commit (5 kB for torch, 2.5 kB for Python), and a new rank would get it from a peer. Seeding is
shorter, and it makes two ranks draw different numbers in one step, as dropout needs it.
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

__all__ = ["StepSeed", "mix", "reseed"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, odd: splitmix64's increment (Steele and others, 2014)."""

_torch_generator = torch.default_generator
_python: Any = random.seed.__self__  # type: ignore[attr-defined]
_seed_python = super(random.Random, _python).seed
"""What `random.seed` calls for a whole number, after it has looked at what it was given."""
_NO_RANK = -1
"""The rank in the seed of what all ranks build alike."""


def mix(first: int, *more: int) -> int:
    """Return 64 bits made of small numbers, by splitmix64: neighbours have nothing in common."""
    words = (first, *more)
    state = len(words)
    for word in words:
        state = _stirred(state, word)
    return state


def reseed(prefix: int, step: int) -> None:
    """Seed the generators of torch (CPU and this worker's GPU), Python and numpy, if it is in use.

    This runs at every commit, while the caches hold the training's data, so it is short.
    `torch.manual_seed` would also seed all GPUs of the machine, and costs a hundred times as much.
    Python's and numpy's generators take most of the time. They are seeded even if nothing used
    them: otherwise the first draw of a rank would depend on the step in which it drew before, which
    a process that is new to the rank does not know.

    Args:
        prefix: what `mix` returned for all that changes seldom (seed, rank, epoch).
        step: the number of steps committed so far.
    """
    seed = ((prefix ^ step) * _GOLDEN) & _MASK
    seed ^= seed >> 32
    _torch_generator.manual_seed(seed)
    _seed_python(seed)
    _python.gauss_next = None  # `random.seed` also forgets the second half of a pair.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed & 0xFFFFFFFF)
    else:
        _numpy_import.expect(seed)
    if cuda.is_used() and (own := device()).type == "cuda":
        torch.cuda.default_generators[own.index].manual_seed(seed)


class StepSeed:
    """The seed of one state, which determines what its ranks draw in each step."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._rank = _NO_RANK
        self._prefix, self._epoch = 0, -1

    def enter(self, rank: int) -> None:
        """Draw, from now on, the numbers that this rank draws in its world."""
        self._rank, self._epoch = rank, -1

    def reseed(self, epoch: int, step: int) -> None:
        """Seed all generators for the step that follows; on the way of every commit."""
        if self._epoch != epoch:
            self._epoch = epoch
            self._prefix = mix(self.seed, self._rank, epoch)
        reseed(self._prefix, step)

    def reseed_alike(self, epoch: int, step: int) -> None:
        """Seed all generators for what all ranks build, so that each builds the same."""
        reseed(mix(self.seed, _NO_RANK, epoch), step)


class _NumpyImport(MetaPathFinder):
    """Seeds numpy's generator when numpy imports it, which numpy 2 does at its first use.

    Otherwise a process whose first use is in the middle of a step would draw from a generator with
    a seed of its own, and a process that repeats the step would draw other numbers. An import for
    every script would make each commit seed a generator that most scripts do not use.
    """

    def __init__(self) -> None:
        self._seed: int | None = None

    def expect(self, seed: int) -> None:
        """Seed the generator with this if numpy imports it before the next call."""
        if self._seed is None:
            sys.meta_path.insert(0, self)
        self._seed = seed

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find `numpy.random` as the other finders do, and let its loader seed it."""
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

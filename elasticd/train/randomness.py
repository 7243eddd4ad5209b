"""Generators seeded from (seed, rank, step), so that a step done again draws what it drew before.

A generator's own state would have to be copied at each commit (5 kB for torch, 2.5 kB for Python)
and would come from a peer where a rank is new. Seeding is shorter, and it is what makes two ranks
of one step differ, as dropout needs it.
"""

import random
import sys

import torch

from elasticd.train import cuda
from elasticd.train.device import device

__all__ = ["mix", "reseed"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, odd: splitmix64's increment (Steele and others, 2014)."""

_torch_generator = torch.default_generator
_seed_python = random.seed
_has_cuda = cuda.is_used


def mix(first: int, *more: int) -> int:
    """Turn small numbers into 64 bits in which neighbours have nothing in common (splitmix64)."""
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
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed & 0xFFFFFFFF)
    if _has_cuda() and (own := device()).type == "cuda":
        torch.cuda.default_generators[own.index].manual_seed(seed)


def _stirred(state: int, word: int) -> int:
    state = (state + word + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)

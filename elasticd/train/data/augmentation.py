"""Random augmentations that depend on the sample and the epoch, not on who fetches it.

Before each sample the generators of `random`, numpy (if the process has it) and torch are seeded
from (seed, epoch, index of the sample). A data worker has generators of its own; in the training
process (`num_workers=0`) they are restored after the batch. Measured on one core of a small virtual
machine: 10 to 15 microseconds a sample and, in the training process, 150 a batch. This is little
beside decoding an image, but several times the cost of a row of a tensor. So it is an option.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Protocol

import torch
from torch.utils.data import get_worker_info

from elasticd.train.data.batch_share import KeyedIndices

__all__ = ["Samples", "Seeded"]


class Samples(Protocol):
    """A map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Seeded:
    """A dataset whose samples are each fetched with freshly seeded generators.

    Batches come through `__getitems__`, with the key of their epoch. A dataset's own `__getitems__`
    is not used, because nothing in it shows where one sample ends and the next begins.
    """

    def __init__(self, dataset: Samples) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, keyed: KeyedIndices) -> list[Any]:
        """Fetch a batch, each sample with generators seeded for it."""
        key, indices = keyed
        if get_worker_info() is not None:
            return [self._fetch(key, index) for index in indices]
        with _generators_put_back():
            return [self._fetch(key, index) for index in indices]

    def _fetch(self, key: int, index: int) -> Any:
        _seed(int.from_bytes(blake2b(b"%d:%d" % (key, index), digest_size=8).digest(), "little"))
        return self.dataset[index]


def _seed(seed: int) -> None:
    random.seed(seed)
    # Not torch.manual_seed: that would seed the accelerators' generators of the training too.
    torch.default_generator.manual_seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFF_FFFF)  # all that numpy's global generator takes


@contextmanager
def _generators_put_back() -> Iterator[None]:
    python_state = random.getstate()
    torch_state = torch.default_generator.get_state()
    numpy: Any = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        torch.default_generator.set_state(torch_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)

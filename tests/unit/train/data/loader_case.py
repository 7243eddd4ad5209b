"""Loaders for tests: batches stay lists, and whole worlds live in one process."""

from typing import Any

import torch

from elasticd.train.data.loader import Loader, loader_core_of
from elasticd.train.interrupt import Interrupted
from elasticd.train.introspection.time_spent import SecondsSpent

__all__ = ["Numbers", "Watch", "loader_of", "world_of"]

torch.set_num_threads(1)


class Watch:
    """Counts deliveries; from `at` of them on it raises Interrupted instead."""

    def __init__(self, at: int | None = None) -> None:
        self.spent = SecondsSpent()
        self.deliveries = 0
        self.at = at

    def delivered(self) -> None:
        if self.deliveries == self.at:
            raise Interrupted
        self.deliveries += 1


class Numbers:
    """Sample i is i; no memory."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.fetched: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.length:
            raise IndexError(index)
        self.fetched.append(index)
        return index


def as_list(batch: list[int]) -> list[int]:
    return batch


def loader_of(dataset: Any, batch_size: int, **options: Any) -> Loader:
    return Loader(dataset, batch_size, collate_fn=as_list, **options)


def world_of(dataset: Any, batch_size: int, size: int, **options: Any) -> list[Loader]:
    """Return the loaders of all ranks of a world."""
    loaders = [loader_of(dataset, batch_size, **options) for _ in range(size)]
    for rank, loader in enumerate(loaders):
        loader_core_of(loader).place(rank, size, Watch())
    return loaders

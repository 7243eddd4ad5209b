"""Data for a world whose size changes: each sample of an epoch counts exactly once.

A position says everything: (epoch, samples consumed). The epoch's order is computed from it
(`permutation`), each global batch is cut from the order and shared among the ranks (`batch_share`),
torch's DataLoader fetches this rank's part (`dataloader`). Two positions are kept: *pending* moves
with every batch handed to the script, *committed* follows at a commit. Batches that data workers
read ahead are in neither. When the world changes, every rank is placed anew: pending goes back to
committed, and batches read ahead are dropped.

Rejected: to wrap a DistributedSampler. Its order depends on the world size, its padding counts
samples twice, and it resumes by fetching and dropping what was read before.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch.utils.data import Dataset

from elasticd.errors import CallError
from elasticd.train.data.augmentation import Samples
from elasticd.train.data.dataloader import FetchSettings
from elasticd.train.data.loader_core import LoaderCore

__all__ = ["Loader", "loader_core_of"]


class Loader:
    """Iterable over this rank's share of each global batch, from where the last commit stood.

    Takes a map-style dataset and torch's DataLoader's arguments. `batch_size` is the *global* batch
    and stays the same at every world size. `seed` and `shuffle` define the order; `drop_last` drops
    the samples of an epoch that do not fill a batch.

    A `for` loop runs over the rest of the current epoch; the loop after that, over the next one. To
    break out and to begin another loop goes on after the batch delivered last; a batch that the
    script peeked at counts as delivered. All iterators of a loader share its one position. After a
    change of world it goes on from the last commit. Several batches may go into one commit
    (accumulation), several commits may be made for one batch.

    `read_ahead` is for a loop that takes the next batch before it trains on the one it has: a
    commit then counts all batches but the newest, and `weight` is that of the batch before it. By
    default the loader looks at the first commits of each loop and refuses one that seems to do so.

    With `augment_seed=True` the generators of `random`, numpy and torch are seeded for each sample
    from (seed, epoch, its index), so that random augmentations do not depend on the world size or
    on `num_workers`. That costs 10 to 15 microseconds a sample, hence not the default.

    Outside of `elasticd.run` it is rank 0 in a world of one.
    """

    def __init__(
        self,
        dataset: Samples | Dataset[Any],
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        augment_seed: bool = False,
        read_ahead: bool | None = None,
        generator: None = None,
        sampler: None = None,
        batch_sampler: None = None,
    ) -> None:
        _refuse(generator=generator, sampler=sampler, batch_sampler=batch_sampler)
        self._core = LoaderCore(
            dataset,
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            fetching=FetchSettings(
                num_workers=num_workers,
                collate_fn=collate_fn,
                pin_memory=pin_memory,
                timeout=timeout,
                worker_init_fn=worker_init_fn,
                multiprocessing_context=multiprocessing_context,
                prefetch_factor=prefetch_factor,
                persistent_workers=persistent_workers,
            ),
            is_seeded=augment_seed,
            is_ahead=read_ahead,
        )

    @property
    def weight(self) -> float:
        """The weight of the share delivered last.

        The mean over all ranks of weight * local mean is exactly the mean over the global batch. It
        is 0.0 if the tail had no sample left for this rank: then it gets samples that another rank
        has too, so that it takes part in the collectives, and they do not count.
        """
        return self._core.weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._core.weight = weight

    @property
    def epoch(self) -> int:
        """The epoch of the committed position."""
        return self._core.cursor.committed.epoch

    @property
    def consumed(self) -> int:
        """The samples of that epoch that counted, over all ranks, as of the last commit."""
        return self._core.cursor.committed.consumed

    @property
    def epoch_samples(self) -> int:
        """The samples that a whole epoch delivers, over all ranks."""
        return len(self) * self._core.batch_size if self._core.drop_last else self._core.length

    def __len__(self) -> int:
        """Return the global batches in a whole epoch."""
        extra = 0 if self._core.drop_last else self._core.batch_size - 1
        return (self._core.length + extra) // self._core.batch_size

    def __iter__(self) -> Iterator[Any]:
        return self._core.begin_pass(sys._getframe(1))

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return `loss * weight`; the loss itself where the weight is 1, as in most steps.

        A product by 1 would be one operation more in the forward pass and one in the backward pass.
        """
        return loss if self.weight == 1.0 else loss * self.weight

    def weight_of(self, count: float, total: float) -> float:
        """Return the weight of a share that holds `count` of the `total` units of a global batch.

        It is for a mean over something other than samples: tokens that are not padding, or pixels.
        `total` is the sum of the counts over all ranks. Where `weight` is 0 the share does not
        count: add 0 for it to the total.

        Raises:
            CallError: the count is not between 0 and the total.
        """
        if not self.weight or not total:
            return 0.0
        if not 0 <= count <= total:
            raise CallError(
                f"weight_of({count}, {total}): the count of this rank must lie between 0 and the "
                "total of all ranks; sum the counts over the ranks first (all_reduce)"
            )
        return count * self._core.size / total

    def state_dict(self) -> dict[str, int | bool | str]:
        """Return the committed position, with its dataset's length and its order, JSON-plain."""
        return self._core.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a position that `state_dict` returned.

        `seed` and `shuffle` are taken over with it, since the order in which the epoch was begun is
        part of the position; `batch_size` and `drop_last` are the script's, who may change them.

        Raises:
            CallError: the state is no Loader's, is damaged, or belongs to other samples.
        """
        self._core.load_state_dict(state)


def loader_core_of(loader: Loader) -> LoaderCore:
    """Return the working parts of a loader, which the state uses in its place."""
    return loader._core


def _refuse(**arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise CallError(
                f"a Loader takes no {name}: its order comes from seed and shuffle, so that each "
                "sample counts once at every world size; leave it away"
            )

"""Data for a world whose size changes: each sample of an epoch counts exactly once.

A position is all there is to know: (epoch, samples consumed). The epoch's order is computed from it
(`permutation`), each global batch is cut from the order and shared among the ranks (`batch_share`),
torch's DataLoader fetches this rank's part (`dataloader`). Two positions are kept: *pending* moves
with every batch handed to the script, *committed* follows at a commit. What data workers read ahead
is in neither. When the world changes, every rank is placed anew: pending goes back to committed,
and what was read ahead is dropped.

Rejected: to wrap a DistributedSampler. Its order depends on the world size, its padding counts
samples twice, and it resumes by fetching and dropping what was read before.
"""

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import BaseContext
from time import monotonic
from typing import Any, Protocol, cast

import torch
from torch.utils.data import Dataset, IterableDataset

from elasticd.errors import CallError
from elasticd.train.data.augmentation import Samples
from elasticd.train.data.batch_share import BatchShare, EpochCourse
from elasticd.train.data.cursor import Cursor, DataPosition
from elasticd.train.data.dataloader import BatchReader, FetchSettings
from elasticd.train.data.kept_batches import KeptBatches
from elasticd.train.data.ledger import SampleSpan
from elasticd.train.data.loader_pass import LoaderPass
from elasticd.train.data.prefetched_batch import PrefetchCheck
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.selection import selection_of

__all__ = ["Loader"]


class _Deliveries(Protocol):
    """What a loader needs of the state's `StateWatch`."""

    spent: SecondsSpent

    def delivered(self) -> None:
        """Take note that a batch goes to the script, or raise Interrupted."""


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

    weight: float
    """The weight of the share delivered last: the mean over all ranks of weight * local mean is
    exactly the mean over the global batch. It is 0.0 if the tail had no sample left for this rank:
    then it gets samples that another rank has too, so that it takes part in the collectives, and
    they do not count."""

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
        self.weight = 1.0
        self._dataset = cast(Samples, dataset)  # torch's Dataset does not declare its __len__
        self._length = _length(dataset)
        self._selection = selection_of(dataset)
        self._batch_size = _batch_size(batch_size)
        self._shuffle = bool(shuffle)
        self._seed = operator.index(seed)
        self._drop_last = bool(drop_last)
        fetching = FetchSettings(
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
        )
        self._reader = BatchReader(self._dataset, fetching, is_seeded=augment_seed)
        self._read_position: int | None = None  # of the batch that the reader gives next
        self._cursor = Cursor(self._length)
        self._ahead = PrefetchCheck(is_ahead=read_ahead)
        self._is_over = False  # a loop has come to the end of the epoch
        self._rank, self._size, self._least = 0, 1, 1
        self._watch: _Deliveries | None = None
        self._kept: KeptBatches | None = None
        self._spent = SecondsSpent()
        self._placements = 0
        self._course = self._cut()

    @property
    def _has_delivered(self) -> bool:
        """True if the script was given batches that no commit has counted."""
        return self._cursor.pending != self._cursor.committed

    @property
    def epoch(self) -> int:
        """The epoch of the committed position."""
        return self._cursor.committed.epoch

    @property
    def consumed(self) -> int:
        """The samples of that epoch that counted, over all ranks, as of the last commit."""
        return self._cursor.committed.consumed

    @property
    def epoch_samples(self) -> int:
        """The samples that a whole epoch delivers, over all ranks."""
        return len(self) * self._batch_size if self._drop_last else self._length

    def __len__(self) -> int:
        """Return the global batches in a whole epoch."""
        extra = 0 if self._drop_last else self._batch_size - 1
        return (self._length + extra) // self._batch_size

    def __iter__(self) -> Iterator[Any]:
        if self._is_over:
            # Not before: a script may find out that a batch is the last before it commits it, and
            # the next epoch does not begin with that commit.
            self._finish()
        self._ahead.begin()
        begun = self._kept.pass_begins(self, sys._getframe(1)) if self._kept else None
        return LoaderPass(self, self._cursor.pending.epoch, self._placements, begun)

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
        """
        if not self.weight or not total:
            return 0.0
        if not 0 <= count <= total:
            raise CallError(
                f"weight_of({count}, {total}): the count of this rank must lie between 0 and the "
                "total of all ranks; sum the counts over the ranks first (all_reduce)"
            )
        return count * self._size / total

    def state_dict(self) -> dict[str, int | bool | str]:
        """Return the committed position and what it refers to, JSON-plain."""
        return {
            "epoch": self._cursor.committed.epoch,
            "consumed": self._cursor.committed.consumed,
            "length": self._length,
            "batch_size": self._batch_size,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
            "selection": self._selection,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a position that `state_dict` returned.

        `seed` and `shuffle` are taken over with it, since the order in which the epoch was begun is
        part of the position; `batch_size` and `drop_last` are the script's, who may change them.
        """
        try:
            epoch, consumed, length, seed = (
                operator.index(state[key]) for key in ("epoch", "consumed", "length", "seed")
            )
            shuffle = bool(state["shuffle"])
        except (KeyError, TypeError) as exc:
            raise CallError(
                f"this is not the state of a Loader ({exc}): give what its state_dict() returned"
            ) from exc
        _require_length(now=self._length, then=length)
        if state.get("selection", self._selection) != self._selection:
            raise CallError(
                "the dataset is a Subset of other samples than at the last commit: draw the same "
                "in each process (random_split(..., generator=torch.Generator().manual_seed(0)))"
            )
        if epoch < 0 or not 0 <= consumed <= length:
            raise CallError(
                f"the state of the Loader is damaged: epoch {epoch}, {consumed} of {length} samples"
            )
        self._seed, self._shuffle = seed, shuffle
        self._go_back(DataPosition(epoch, consumed))

    def _place(
        self,
        rank: int,
        size: int,
        watch: _Deliveries,
        least: int = 1,
        *,
        has_begun: bool = False,
    ) -> None:
        """Become `rank` of `size` at the committed position, and end readers of an earlier one.

        `least`: no rank gets fewer samples of a tail, except those that get none. `has_begun`:
        another loader of the state has been read.
        """
        has_begun |= (self.epoch, self.consumed) != (0, 0)
        if self._batch_size < size and not has_begun:
            # Once it trains, a node more than there are samples is no reason to end it: the ranks
            # that are too many repeat a sample with weight 0, as in the tail of an epoch.
            raise CallError(
                f"batch_size is the global batch, and {self._batch_size} samples are too few for "
                f"{size} workers: give a batch_size of at least {size}, or run fewer workers"
            )
        _require_length(now=_length(self._dataset), then=self._length)
        self._rank, self._size, self._least, self._watch = rank, size, least, watch
        self._spent = watch.spent
        self._go_back()

    def _commit(self) -> tuple[SampleSpan, ...]:
        """Make the pending position the committed one; return the spans since the last commit, each
        once.
        """
        if self._ahead.is_looking:
            self._ahead.commit()
        return self._cursor.commit()

    def _end_epoch(self, epoch: int) -> tuple[SampleSpan, ...]:
        """Be at the beginning of `epoch` after the `_commit` that must follow.

        What is unread of the epochs before was left out by the script. It returns all that was
        delivered or left out since the last commit, so that `_commit` does not return it again. A
        loader that is past that point (several passes within one epoch of the state) does not go
        back: it ends its present pass.
        """
        while self._cursor.pending.consumed > 0 or self._cursor.pending.epoch < epoch:
            self._finish()
        return self._cursor.take_spans()

    def _next(self, epoch: int, placement: int) -> Any:
        self._check_placement(placement)
        pending = self._cursor.pending
        if pending.epoch != epoch:
            raise StopIteration  # the epoch ended, here or in another loop
        held = self._ahead.held
        start = held.batch_stop if held is not None else pending.consumed
        share = self._course.share(start)
        if share is None:
            self._count(self._ahead.let_go())  # The script trains on the last one from here on.
            self._is_over = True
            self._read_position = None
            self._reader.rest()
            raise StopIteration
        self._ahead.check()
        asked_s = monotonic()
        if self._read_position != start:
            self._reader.open(self._course, start)
        self._read_position = None  # until all went well, it may have read what is not delivered
        batch = self._reader.next()
        self._check_placement(placement)  # In a thread of the script's that outlives `train`.
        self._spent.data_s += monotonic() - asked_s
        if self._watch is not None:
            self._watch.delivered()
        self._read_position = share.batch_stop
        if held is None:
            self.weight = share.weight
        self._count(self._ahead.take(share))
        return batch

    def _check_placement(self, placement: int) -> None:
        if placement != self._placements:
            raise CallError(
                "this iterator over a Loader was made before the world changed (or before a state "
                "was loaded): begin a new loop over the loader inside `train`"
            )

    def _count(self, share: BatchShare | None) -> None:
        """Let the next commit count the share that the script trains on now."""
        if share is not None:
            self._cursor.deliver(share.batch_stop)
            self.weight = share.weight

    def _finish(self) -> None:
        """Move on to the next epoch."""
        self._is_over = False
        self._ahead.begin()
        self._cursor.finish()
        self._course = self._cut()
        self._read_position = None
        self._reader.rest()

    def _go_back(self, committed: DataPosition | None = None) -> None:
        """Go back to the last commit, as if nothing had been read since."""
        self._is_over = False
        self._ahead.begin()
        self._cursor.go_back(committed)
        self._placements += 1
        self._course = self._cut()
        self._read_position = None
        self._reader.close()

    def _cut(self) -> EpochCourse:
        return EpochCourse(
            length=self._length,
            batch_size=self._batch_size,
            shuffle=self._shuffle,
            seed=self._seed,
            drop_last=self._drop_last,
            epoch=self._cursor.pending.epoch,
            rank=self._rank,
            size=self._size,
            least=self._least,
        )


def _refuse(**arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise CallError(
                f"a Loader takes no {name}: its order comes from seed and shuffle, so that each "
                "sample counts once at every world size; leave it away"
            )


def _length(dataset: object) -> int:
    if isinstance(dataset, IterableDataset):
        raise CallError(
            f"the dataset is an IterableDataset ({type(dataset).__name__}), which cannot be read "
            "from a position on: give a map-style one, with __len__ and __getitem__"
        )
    try:
        if hasattr(dataset, "__getitem__"):
            return len(dataset)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        pass
    raise CallError(
        f"the dataset is a {type(dataset).__name__}, which lacks a length or cannot be indexed: "
        "give a map-style one, with __len__ and __getitem__"
    )


def _batch_size(batch_size: object) -> int:
    try:
        size = -1 if isinstance(batch_size, bool) else operator.index(batch_size)  # type: ignore[arg-type]
    except TypeError:
        size = -1
    if size < 1:
        raise CallError(
            f"batch_size is {batch_size!r}: give the global batch, a whole number of at least 1"
        )
    return size


def _require_length(*, now: int, then: int) -> None:
    if now != then:
        raise CallError(
            f"the dataset has {now} samples, but had {then} at the last commit: give the same "
            "dataset as then, or begin a new run"
        )

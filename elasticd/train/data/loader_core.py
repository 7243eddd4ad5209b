"""The parts of a Loader: a position, the order of the epoch, and a reader.

A script sees a `Loader` alone; the state, which places and commits its loaders, gets this from
`loader_core_of`.
"""

import operator
from collections.abc import Mapping
from time import monotonic
from types import FrameType
from typing import Any, Protocol, cast

from torch.utils.data import Dataset, IterableDataset

from elasticd.errors import CallError
from elasticd.train.data.augmentation import Samples
from elasticd.train.data.batch_share import BatchShare, EpochBatches
from elasticd.train.data.cursor import Cursor, DataPosition
from elasticd.train.data.dataloader import BatchReader, FetchSettings
from elasticd.train.data.kept_batches import KeptBatches, PassBegun
from elasticd.train.data.ledger import SampleSpan
from elasticd.train.data.prefetched_batch import PrefetchCheck
from elasticd.train.data.selection import selection_of
from elasticd.train.introspection.time_spent import SecondsSpent

__all__ = ["LoaderCore", "LoaderPass"]


class _Deliveries(Protocol):
    """The methods of the state's `StepSession` that a loader needs."""

    spent: SecondsSpent

    def delivered(self) -> None:
        """Take note that a batch goes to the script, or raise Interrupted."""


class LoaderCore:
    """This rank's share of each global batch, from where the last commit stood."""

    def __init__(
        self,
        dataset: Samples | Dataset[Any],
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        fetching: FetchSettings,
        is_seeded: bool,
        is_ahead: bool | None,
    ) -> None:
        """`is_seeded` says that generators are seeded for each sample, `is_ahead` that the script
        reads ahead (None if the script has not said).

        Raises:
            CallError: the dataset has no length or cannot be indexed, or the size of a batch is no
                whole number of at least 1.
        """
        self.weight = 1.0
        """The weight of the share delivered last."""
        self.length = _length(dataset)
        """The number of samples of the dataset."""
        self.batch_size = _batch_size(batch_size)
        """The number of samples of a batch, over all ranks."""
        self.drop_last = bool(drop_last)
        self.size = 1
        """The number of ranks that share each batch."""
        self.kept: KeptBatches | None = None
        """The state's check for batches that the script keeps; None outside of a state."""
        self.cursor = Cursor(self.length)
        self._dataset = cast(Samples, dataset)  # torch's Dataset does not declare its __len__
        self._selection = selection_of(dataset)
        self._shuffle = bool(shuffle)
        self._seed = operator.index(seed)
        self._reader = BatchReader(self._dataset, fetching, is_seeded=is_seeded)
        self._read_position: int | None = None  # of the batch that the reader gives next
        self.ahead = PrefetchCheck(is_ahead=is_ahead)
        self._is_over = False  # a loop has come to the end of the epoch
        self._rank, self._least = 0, 1
        self._session: _Deliveries | None = None
        self._spent = SecondsSpent()
        self._placements = 0
        self._epoch_batches = self._cut()

    @property
    def has_delivered(self) -> bool:
        """Return whether the script was given batches that no commit has counted."""
        return self.cursor.pending != self.cursor.committed

    def begin_pass(self, frame: FrameType) -> "LoaderPass":
        """Return the iterator of a loop that the function of this frame begins."""
        if self._is_over:
            # Not before: a script may find out that a batch is the last before it commits it, and
            # the next epoch does not begin with that commit.
            self._finish()
        self.ahead.begin()
        begun = self.kept.pass_begins(self, frame) if self.kept else None
        return LoaderPass(self, self.cursor.pending.epoch, self._placements, begun)

    def state_dict(self) -> dict[str, int | bool | str]:
        """Return the committed position and what it refers to, JSON-plain."""
        return {
            "epoch": self.cursor.committed.epoch,
            "consumed": self.cursor.committed.consumed,
            "length": self.length,
            "batch_size": self.batch_size,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "drop_last": self.drop_last,
            "selection": self._selection,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a position that `state_dict` returned.

        Raises:
            CallError: the state is none of a Loader, is damaged, or belongs to other samples.
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
        _require_length(now=self.length, then=length)
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

    def place(
        self,
        rank: int,
        size: int,
        session: _Deliveries,
        least: int = 1,
        *,
        has_begun: bool = False,
    ) -> None:
        """Become `rank` of `size` at the committed position, and end readers of an earlier one.

        `least` is the fewest samples of a tail that a rank gets, except ranks that get none.
        `has_begun` says that another loader of the state has been read.

        Raises:
            CallError: a batch has fewer samples than there are workers, before the first commit;
                or the dataset has changed its length.
        """
        has_begun |= (self.cursor.committed.epoch, self.cursor.committed.consumed) != (0, 0)
        if self.batch_size < size and not has_begun:
            # Once it trains, a node more than there are samples is no reason to end it: the ranks
            # that are too many repeat a sample with weight 0, as in the tail of an epoch.
            raise CallError(
                f"batch_size is the global batch, and {self.batch_size} samples are too few for "
                f"{size} workers: give a batch_size of at least {size}, or run fewer workers"
            )
        _require_length(now=_length(self._dataset), then=self.length)
        self._rank, self.size, self._least, self._session = rank, size, least, session
        self._spent = session.spent
        self._go_back()

    def commit(self) -> tuple[SampleSpan, ...]:
        """Make the pending position the committed one; return the spans since the last commit, each
        once.
        """
        if self.ahead.is_looking:
            self.ahead.commit()
        return self.cursor.commit()

    def end_epoch(self, epoch: int) -> tuple[SampleSpan, ...]:
        """Be at the beginning of `epoch` after the `commit` that must follow.

        The unread samples of the epochs before were left out by the script. The method returns all
        spans delivered or left out since the last commit, so that `commit` does not return them
        again. A loader that is past that point (several passes within one epoch of the state) does
        not go back: it ends its present pass.
        """
        self.hold_epoch(epoch)
        return self.cursor.take_spans()

    def hold_epoch(self, epoch: int) -> None:
        """Be at the beginning of `epoch`, and let the next commit count the spans before it."""
        while self.cursor.pending.consumed > 0 or self.cursor.pending.epoch < epoch:
            self._finish()

    def next(self, epoch: int, placement: int) -> Any:
        """Return the next batch of a loop that began in this epoch, after so many placements.

        Raises:
            CallError: the world has changed since the loop began, or the script reads ahead and
                has not said so.
            StopIteration: the epoch has ended.
        """
        self._check_placement(placement)
        pending = self.cursor.pending
        if pending.epoch != epoch:
            raise StopIteration  # the epoch ended, here or in another loop
        held = self.ahead.held
        start = held.batch_stop if held is not None else pending.consumed
        share = self._epoch_batches.share(start)
        if share is None:
            self._count(self.ahead.release())  # The script trains on the last one from here on.
            self._is_over = True
            self._read_position = None
            self._reader.rest()
            raise StopIteration
        self.ahead.check()
        asked_s = monotonic()
        if self._read_position != start:
            self._reader.open(self._epoch_batches, start)
        self._read_position = None  # until all went well, it may have read what is not delivered
        batch = self._reader.next()
        self._check_placement(placement)  # In a thread of the script's that outlives `train`.
        self._spent.data_s += monotonic() - asked_s
        if self._session is not None:
            self._session.delivered()
        self._read_position = share.batch_stop
        if held is None:
            self.weight = share.weight
        self._count(self.ahead.take(share))
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
            self.cursor.deliver(share.batch_stop)
            self.weight = share.weight

    def _finish(self) -> None:
        """Move on to the next epoch."""
        self._is_over = False
        self.ahead.begin()
        self.cursor.finish()
        self._epoch_batches = self._cut()
        self._read_position = None
        self._reader.rest()

    def _go_back(self, committed: DataPosition | None = None) -> None:
        """Go back to the last commit, as if nothing had been read since."""
        self._is_over = False
        self.ahead.begin()
        self.cursor.go_back(committed)
        self._placements += 1
        self._epoch_batches = self._cut()
        self._read_position = None
        self._reader.close()

    def _cut(self) -> EpochBatches:
        return EpochBatches(
            length=self.length,
            batch_size=self.batch_size,
            shuffle=self._shuffle,
            seed=self._seed,
            drop_last=self.drop_last,
            epoch=self.cursor.pending.epoch,
            rank=self._rank,
            size=self.size,
            least=self._least,
        )


class LoaderPass:
    """The iterator of a `for` loop over a Loader: it ends with the epoch in which it began."""

    def __init__(
        self, loader: LoaderCore, epoch: int, placement: int, begun: PassBegun | None
    ) -> None:
        self._loader, self._begun = loader, begun
        self._epoch = epoch
        self._placement = placement
        self._gave = begun.gave if begun is not None else None

    def __iter__(self) -> "LoaderPass":
        return self

    def __next__(self) -> Any:
        try:
            batch = self._loader.next(self._epoch, self._placement)
        except StopIteration:
            if self._begun is not None:
                self._begun.end(self)
            raise
        if self._gave is not None and not self._gave(batch):
            self._gave = None
        return batch


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

"""One rank's share of each global batch.

Global batch k of an epoch is positions [c, c + B) of the epoch's order, cut at the epoch's end; the
ranks take consecutive parts of it whose sizes differ by at most one. The order and the cuts do not
depend on the world size: so every sample counts once however the world changes, and virtual ranks
stay possible (a rank that stands for several takes several parts).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from elasticd.train.data.permutation import Permutation

__all__ = ["BatchShare", "EpochBatches", "KeyedIndices", "ShareSampler"]

KeyedIndices = tuple[int, list[int]]
"""Sample indices, and a number that is another for each (seed, epoch)."""

_CHUNK = 4096  # positions permuted at once: what a call costs is then little per batch


class BatchShare(NamedTuple):
    """The part that a rank of a world gets of the global batch [batch_start, batch_stop)."""

    batch_start: int
    batch_stop: int
    start: int
    stop: int
    size: int

    @classmethod
    def of(
        cls, batch_start: int, batch_stop: int, *, rank: int, size: int, least: int = 1
    ) -> "BatchShare":
        """Return the share of `rank` in a world of `size`; the lowest ranks get one more.

        A rank that gets any samples gets at least `least`, if there are as many: other ranks get
        none.
        """
        count = batch_stop - batch_start
        among = min(size, max(count // least, 1))
        each, rest = divmod(count, among)
        if rank >= among:
            return cls(batch_start, batch_stop, batch_stop, batch_stop, size)
        start = batch_start + rank * each + min(rank, rest)
        return cls(batch_start, batch_stop, start, start + each + (rank < rest), size)

    @property
    def weight(self) -> float:
        """Return the factor that makes the mean over ranks of weight * local mean the mean of the
        global batch.
        """
        return (self.stop - self.start) * self.size / (self.batch_stop - self.batch_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBatches:
    """The batches of an epoch for one rank of one world."""

    length: int
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    epoch: int
    rank: int
    size: int
    least: int = 1
    """The least samples that a rank gets of a tail, if it gets any: layers that normalise over a
    batch fail with one."""

    def share(self, position: int) -> BatchShare | None:
        """Return the share of the global batch that begins at a position; None if none is left."""
        left = self.length - position
        if left <= 0 or (self.drop_last and left < self.batch_size):
            return None
        stop = position + min(self.batch_size, left)
        least = self.least if left < self.batch_size else 1
        return BatchShare.of(position, stop, rank=self.rank, size=self.size, least=least)

    def key(self, *more: int) -> int:
        """Return 64 bits that are others for each (seed, epoch) and for each `more`."""
        text = ":".join(map(str, (self.seed, self.epoch, *more)))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")

    def indices(self, start: int) -> Iterator[list[int]]:
        """Yield the indices of the samples in this rank's shares from a position on."""
        order = Permutation(self.length, self.seed, self.epoch) if self.shuffle else None
        position = start
        while (share := self.share(position)) is not None:
            if share.start == share.stop:
                # A rank must take part in the collectives of a tail that has nothing for it: it
                # repeats the tail's first samples, with weight 0.
                stop = min(position + self.least, share.batch_stop)
                share = BatchShare.of(position, stop, rank=0, size=1)
            count = share.stop - share.start
            full = max((self.length - position) // self.batch_size, 1)
            batches = min(full, max(_CHUNK // count, 1))
            stop = share.start + batches * self.batch_size
            if self.length - position < self.batch_size and count < self.least:
                # All that is left: the mean over a sample and itself again is the same.
                yield self._at(order, share.start, count) * self.least
            elif order is None:
                for first in range(share.start, stop, self.batch_size):
                    yield self._at(order, first, count)
            else:
                yield from order.blocks(share.start, count, self.batch_size, batches)
            position += batches * self.batch_size

    def _at(self, order: Permutation | None, start: int, count: int) -> list[int]:
        if order is None:
            return list(range(start, start + count))
        return order.blocks(start, count, self.batch_size, 1)[0]


class ShareSampler:
    """Batch sampler for torch's DataLoader that begins wherever `point` says."""

    def __init__(self, *, is_keyed: bool) -> None:
        self._is_keyed = is_keyed
        self._epoch_batches: EpochBatches | None = None
        self._start = 0

    def point(self, epoch_batches: EpochBatches, start: int) -> None:
        """Let the next iterator begin at a position of an epoch."""
        self._epoch_batches = epoch_batches
        self._start = start

    def __iter__(self) -> Iterator[list[int] | KeyedIndices]:
        if self._epoch_batches is None:
            return
        if not self._is_keyed:
            yield from self._epoch_batches.indices(self._start)
            return
        key = self._epoch_batches.key()
        for indices in self._epoch_batches.indices(self._start):
            yield key, indices

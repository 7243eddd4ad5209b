"""Counts samples, and so proves that every sample of an epoch counted exactly once.

A loader says which positions of which epoch it delivered (`SampleSpan`); the ledger compares each
span with where the last one ended. The ledger does not know how the loader works, so it cannot
share the mistake of a loader that goes back or jumps. The ledger counts positions, not samples:
`permutation` ensures that a position is always the same sample.

Every position is exactly one of: counted, skipped (a bug of elasticd), left out (the script ended
the epoch early, or `drop_last` cut its tail). So ``samples + skipped + left_out == epochs * length
+ consumed`` from the beginning of an epoch on. The counts of all loaders of a run together are its
`DataTotals`, and `summary` makes a sentence of them.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["DataTotals", "Ledger", "SampleSpan", "summary"]


class SampleSpan(NamedTuple):
    """Positions [start, stop) of an epoch's order, over all ranks: delivered or left out.

    A named tuple, as one is made for each batch: a frozen dataclass takes four times as long.
    """

    epoch: int
    start: int
    stop: int
    length: int
    """Samples in the whole epoch."""
    is_left_out: bool = False
    """True if it was not delivered, because the script wanted it so."""


class Ledger:
    """Counts samples: those that counted, and those repeated, skipped or left out.

    `epoch` and `consumed` say where the counting begins: where the loader stands before its first
    span.
    """

    def __init__(self, *, epoch: int = 0, consumed: int = 0) -> None:
        self.epoch = epoch
        self.consumed = consumed
        self.samples = 0
        """Counted once each; what was `repeated` is not in it a second time."""
        self.repeated = 0
        self.skipped = 0
        self.left_out = 0
        self.epochs = 0
        """Ended, whether all of it was read or not."""
        self._length: int | None = None  # of the epoch that we are in; None: nothing seen of it

    def take(self, spans: Iterable[SampleSpan]) -> None:
        """Count the spans of a commit, in the order in which they were delivered."""
        for span in spans:
            epoch, start, stop, length, is_left_out = span
            if epoch == self.epoch and start == self.consumed and stop < length and not is_left_out:
                # What follows the last span within its epoch, as in nearly every step.
                self.samples += stop - start
                self.consumed, self._length = stop, length
            else:
                self._take(span)

    def state_dict(self) -> dict[str, int | None]:
        """Return the counts, JSON-plain."""
        return {
            "epoch": self.epoch,
            "consumed": self.consumed,
            "length": self._length,
            "samples": self.samples,
            "repeated": self.repeated,
            "skipped": self.skipped,
            "left_out": self.left_out,
            "epochs": self.epochs,
        }

    def load_state_dict(self, state: Mapping[str, int | None]) -> None:
        """Take over counts that `state_dict` returned."""
        self.epoch = state["epoch"] or 0
        self.consumed = state["consumed"] or 0
        self._length = state["length"]
        self.samples = state["samples"] or 0
        self.repeated = state["repeated"] or 0
        self.skipped = state["skipped"] or 0
        self.left_out = state["left_out"] or 0
        self.epochs = state["epochs"] or 0

    def _take(self, span: SampleSpan) -> None:
        if span.epoch < self.epoch:
            # That epoch is over: all of it was accounted for, so this is there twice.
            self.repeated += 0 if span.is_left_out else span.stop - span.start
            return
        while self.epoch < span.epoch:
            self._end_epoch(span.length)
        self._length = span.length
        self.skipped += max(span.start - self.consumed, 0)
        start = max(span.start, self.consumed)
        new = max(span.stop - start, 0)
        if span.is_left_out:
            self.left_out += new
        else:
            self.samples += new
            self.repeated += span.stop - span.start - new
        self.consumed = max(self.consumed, span.stop)
        if self.consumed >= span.length:
            self._end_epoch(span.length)

    def _end_epoch(self, length: int) -> None:
        """Begin the next epoch; positions that nobody accounted for were skipped."""
        self.skipped += max((self._length or length) - self.consumed, 0)
        self.epochs += 1
        self.epoch += 1
        self.consumed = 0
        self._length = None


class DataTotals(NamedTuple):
    """The counts of all loaders' ledgers, over all ranks, in committed steps."""

    samples: int
    repeated: int
    skipped: int

    @classmethod
    def of(cls, ledgers: Iterable[Ledger]) -> "DataTotals":
        every = tuple(ledgers)
        return cls(*(sum(getattr(each, name) for each in every) for name in cls._fields))


def summary(step: int, epoch: int, totals: DataTotals | None, skipped_steps: int) -> str:
    """Return the sentence; without totals there was no loader, and skipped steps are an
    optimizer's.
    """
    text = f"{_counted(step, 'step')}, {_counted(epoch, 'epoch')}"
    if totals is not None:
        samples, repeated, skipped = totals
        text += f", {_counted(samples, 'sample')} ({repeated} repeated, {skipped} skipped)"
    if skipped_steps:
        text += f"; {_counted(skipped_steps, 'optimizer step')} left out for bad gradients"
    return f"{text}."


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"

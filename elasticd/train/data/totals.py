"""What a run did, in numbers and in a sentence."""

from collections.abc import Iterable
from typing import NamedTuple

from elasticd.train.data.ledger import Ledger

__all__ = ["DataTotals", "summary"]


class DataTotals(NamedTuple):
    """What the loaders' ledgers counted, of all ranks, in committed steps."""

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

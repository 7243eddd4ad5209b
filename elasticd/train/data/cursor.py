"""Where a loader stands: the committed and the delivered position.

The committed one is in the loader's `state_dict` (loader_core.py), and so in each checkpoint.
"""

from typing import NamedTuple

from elasticd.train.data.ledger import SampleSpan

__all__ = ["Cursor", "DataPosition"]


class DataPosition(NamedTuple):
    """The epoch, and how many of its samples were consumed over all ranks."""

    epoch: int
    consumed: int


class Cursor:
    """Two positions, and the spans that lie between them.

    Pending moves with each batch handed to the script; committed follows at a commit; pending goes
    back to committed when the world changes.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self.spans: list[SampleSpan] = []
        """What was delivered or left out since the last commit, each once."""
        self.committed = self.pending = DataPosition(0, 0)

    def deliver(self, stop: int) -> None:
        """Note that the samples up to this position of the epoch were delivered."""
        self._move(stop, is_left_out=False)

    def finish(self) -> None:
        """Move pending to the next epoch; the unread samples of this epoch are left out."""
        if self.pending.consumed < self._length:
            self._move(self._length, is_left_out=True)
        self.pending = DataPosition(self.pending.epoch + 1, 0)

    def commit(self) -> tuple[SampleSpan, ...]:
        """Make pending the committed position; return each span since the last commit once."""
        self.committed = self.pending
        return self.take_spans()

    def take_spans(self) -> tuple[SampleSpan, ...]:
        """Return the spans delivered or left out since the last commit, each span once."""
        spans = tuple(self.spans)
        self.spans.clear()
        return spans

    def go_back(self, committed: DataPosition | None = None) -> None:
        """Go back to the last commit, or take the position of another loader's commit."""
        if committed is not None:
            self.committed = committed
        self.pending = self.committed
        self.spans = []

    def _move(self, stop: int, *, is_left_out: bool) -> None:
        epoch, start = self.pending
        self.pending = DataPosition(epoch, stop)
        if self.spans:
            last = self.spans[-1]
            if last.epoch == epoch and last.is_left_out == is_left_out:
                # Pending moves forward only, so the last span of this epoch ends where this begins.
                start = self.spans.pop().start
        self.spans.append(SampleSpan(epoch, start, stop, self._length, is_left_out))

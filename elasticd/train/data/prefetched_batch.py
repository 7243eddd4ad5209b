"""Finds out whether the script holds a batch that it has not trained on yet.

A loop that takes the next batch before it trains on the present one (to copy it to a GPU meanwhile)
holds one at each commit. That batch must not count as trained: after a failure no rank would train
on it. Either the script says that it reads ahead, or it is noticed: such a loop takes one batch
more before its first commit than before each later one.
"""

from elasticd.errors import CallError
from elasticd.train.data.batch_share import BatchShare

__all__ = ["PrefetchCheck"]

_SEEN = 2
"""How many commits of a loop are checked."""


class PrefetchCheck:
    """The check of one loader; `is_ahead` is what the script said, None for nothing."""

    def __init__(self, *, is_ahead: bool | None) -> None:
        self.held: BatchShare | None = None
        """The newest batch, where the script trains on the one before."""
        self._is_ahead = is_ahead
        self.is_looking = is_ahead is None
        """Commits of this loop are to be noted."""
        self._taken = 0
        self._counts: list[int] = []

    def begin(self) -> None:
        """Begin another loop; a batch that an earlier one held is not trained on."""
        self.held = None
        self.is_looking = self._is_ahead is None
        self._taken = 0
        self._counts = []

    def take(self, share: BatchShare) -> BatchShare | None:
        """Take note of a delivered batch; return the one that is going to be trained on, if that is
        known.
        """
        self._taken += 1
        if not self._is_ahead:
            return share
        before, self.held = self.held, share
        return before

    def release(self) -> BatchShare | None:
        """Return the last batch, since there is no other."""
        last, self.held = self.held, None
        return last

    def commit(self) -> None:
        """Note how many batches there were for this commit."""
        self._counts.append(self._taken)
        self._taken = 0
        self.is_looking = len(self._counts) < _SEEN

    def check(self) -> None:
        """Check the habits of a loop that goes on.

        Raises: CallError: it seems to read ahead, and the script has not said so.
        """
        if len(self._counts) == _SEEN and 0 < self._counts[1] < self._counts[0]:
            first, second = self._counts
            raise CallError(
                f"The script took {first} batches before its first commit and {second} before the "
                "second, so it seems to read ahead, and a batch that it only holds would count as "
                "trained: give Loader(read_ahead=True) if it takes the next batch before it trains "
                "on the one it has, and Loader(read_ahead=False) if each commit covers all batches "
                "before it."
            )

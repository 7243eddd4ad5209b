"""One loop over a Loader."""

from typing import TYPE_CHECKING, Any

from elasticd.train.data.kept_batches import PassBegun

if TYPE_CHECKING:
    from elasticd.train.data.loader import Loader

__all__ = ["LoaderPass"]


class LoaderPass:
    """The iterator of a `for` loop over a loader: it ends with the epoch in which it began."""

    def __init__(
        self, loader: "Loader", epoch: int, placement: int, begun: PassBegun | None
    ) -> None:
        self._loader, self._begun = loader, begun
        self._epoch = epoch
        self._placement = placement
        self._gave = begun.gave if begun is not None else None

    def __iter__(self) -> "LoaderPass":
        return self

    def __next__(self) -> Any:
        try:
            batch = self._loader._next(self._epoch, self._placement)
        except StopIteration:
            if self._begun is not None:
                self._begun.end(self)
            raise
        if self._gave is not None and not self._gave(batch):
            self._gave = None
        return batch

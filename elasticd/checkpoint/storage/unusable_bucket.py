"""A bucket that cannot be opened here, and says why at every call.

A process that ended for this reason would be started again and again. A process that answers tells
the user the reason, in the sentence with which the job ends.
"""

from collections.abc import Callable, Iterable
from typing import NoReturn

from elasticd.checkpoint.storage.bucket import Data, ListedObject
from elasticd.errors import ElasticdError

__all__ = ["UnusableBucket"]


class UnusableBucket:
    """A `Bucket` whose every method raises the error that opening it raised."""

    def __init__(self, url: str, error: ElasticdError) -> None:
        self._url, self._error = url, error

    @property
    def url(self) -> str:
        return self._url

    def create(self, name: str, data: Data) -> bool:
        self._refuse()

    def replace(self, name: str, data: Data) -> None:
        self._refuse()

    def read(self, name: str, limit_bytes: int) -> bytes:
        self._refuse()

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        self._refuse()

    def delete(self, names: Iterable[str]) -> None:
        self._refuse()

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._error

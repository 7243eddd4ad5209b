"""The port to storage: what checkpoints need of a file system or an object store.

It has six verbs. None renames or appends, and none trusts a listing for anything that counts. Two
implementations, `folder` and `fsspec_bucket`, pass the same contract tests; `retry` wraps either.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from elasticd.errors import ElasticdError, Refused, Unavailable

__all__ = ["Bucket", "ListedObject", "ObjectMissing", "NeedsLength", "Throttled", "ReadableBucket"]

Data = bytes | memoryview


class ObjectMissing(ElasticdError):
    """There is no such object. A bucket that does not exist is an EnvironmentProblem."""


class NeedsLength(Refused):
    """The service takes no body without its length first."""


class Throttled(Unavailable):
    """The service asks for fewer requests."""

    def __init__(self, message: str, *, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s
        """What it asked for; 0: it did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    name: str
    size: int
    modified_unix_s: float


class ReadableBucket(Protocol):
    """Objects by name below one URL, for those who only read them.

    All methods raise Unavailable (try again), Refused (no permission) or EnvironmentProblem (the
    machine lacks something, or there is no such bucket). Several threads may use it.
    """

    @property
    def url(self) -> str:
        """The URL for people."""

    def read(self, name: str, limit_bytes: int) -> bytes:
        """Return an object's bytes; of an object above the limit, one byte more than the limit.

        Raises: ObjectMissing: there is no such object.
        """

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        """Fill `place` from the object's byte `start` on; return how many bytes there were.

        Raises: ObjectMissing: there is no such object.
        """

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        """Return the objects below a folder's name.

        Nothing that must be right may rely on the list.
        """


class Bucket(ReadableBucket, Protocol):
    """A bucket that can also be written to; the methods raise the errors of `ReadableBucket`."""

    def create(self, name: str, data: Data) -> bool:
        """Write an object durably, whole or not at all; return False if there is one already."""

    def replace(self, name: str, data: Data) -> None:
        """Write an object over the one of that name; readers see the old or the new one, whole."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that do not exist count as deleted."""

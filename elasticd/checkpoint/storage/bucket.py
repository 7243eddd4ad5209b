"""The port to storage: what checkpoints need of a file system or an object store.

Six verbs, none of which renames, appends, or trusts a listing for anything that counts. Two
implementations, `folder` and `remote`, pass the same contract tests; `retry` goes around either.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from elasticd.errors import ElasticdError, Refused, Unavailable

__all__ = ["Bucket", "Listed", "Missing", "NeedsLength", "Throttled"]

Data = bytes | memoryview


class Missing(ElasticdError):
    """There is no such object. Of a bucket that does not exist: EnvironmentProblem."""


class NeedsLength(Refused):
    """The service takes no body whose length does not come first."""


class Throttled(Unavailable):
    """The service asks for patience."""

    def __init__(self, message: str, *, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s
        """What it asked for; 0: it did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    name: str
    size: int
    modified_unix_s: float


class Bucket(Protocol):
    """Objects by name below one URL.

    All raise Unavailable (try again), Refused (no permission) or EnvironmentProblem (the machine
    lacks something, or there is no such bucket). Safe to use from several threads.
    """

    @property
    def url(self) -> str:
        """For people."""

    def create(self, name: str, data: Data) -> bool:
        """Write an object durably, whole or not at all; False: there is one already."""

    def replace(self, name: str, data: Data) -> None:
        """Write an object, over what was there; readers see the one or the other."""

    def read(self, name: str, limit_bytes: int) -> bytes:
        """Return an object; of a larger one a byte more than the limit. Raises Missing."""

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        """Fill `place` from the object's byte `start` on; return how much there was.

        Raises:
            Missing: there is no such object.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there count as deleted."""

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[Listed]:
        """Find objects whose names begin with a folder's name; for sweeping only."""

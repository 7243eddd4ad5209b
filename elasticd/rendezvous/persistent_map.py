"""An immutable mapping whose update costs little, so that a state of 5,000 members stays a value.

"Persistent" is said of a data structure whose old versions stay as they were; nothing is written
to a disk. Copying a dict for each of n events would make n members cost n^2 steps. The keys are
spread over a fixed number of small dicts; an update copies one of them and the tuple of references.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar
from zlib import crc32

__all__ = ["PersistentMap"]

V = TypeVar("V")
_BUCKETS = 128
# Any: an empty dict is one of every kind of value; nobody writes into a bucket once it is in.
_NOTHING: dict[str, Any] = {}
_EMPTY = (_NOTHING,) * _BUCKETS


class PersistentMap(Generic[V]):
    """A mapping with string keys; iteration is sorted by key, so that no hash seed can affect a
    decision.
    """

    __slots__ = ("_buckets", "_size")

    def __init__(self, items: Iterable[tuple[str, V]] = ()) -> None:
        filled: dict[int, dict[str, V]] = {}
        for key, value in items:
            filled.setdefault(_bucket(key), {})[key] = value
        self._buckets: tuple[dict[str, V], ...] = _EMPTY
        if filled:
            self._buckets = tuple(filled.get(index, _NOTHING) for index in range(_BUCKETS))
        self._size = sum(map(len, filled.values()))

    def with_item(self, key: str, value: V) -> "PersistentMap[V]":
        bucket = self._buckets[_bucket(key)]
        return self._replaced(key, {**bucket, key: value}, self._size + (key not in bucket))

    def without(self, key: str) -> "PersistentMap[V]":
        bucket = self._buckets[_bucket(key)]
        if key not in bucket:
            return self
        rest = {k: v for k, v in bucket.items() if k != key}
        return self._replaced(key, rest, self._size - 1)

    def get(self, key: str) -> V | None:
        return self._buckets[_bucket(key)].get(key)

    def values(self) -> Iterator[V]:
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[str, V]]:
        merged: dict[str, V] = {}
        for bucket in self._buckets:
            if bucket:
                merged.update(bucket)
        return iter(sorted(merged.items(), key=_key))

    def __contains__(self, key: str) -> bool:
        return key in self._buckets[_bucket(key)]

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PersistentMap) and self._buckets == other._buckets

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"

    def _replaced(self, key: str, bucket: dict[str, V], size: int) -> "PersistentMap[V]":
        index = _bucket(key)
        table: PersistentMap[V] = PersistentMap.__new__(PersistentMap)
        table._buckets = (*self._buckets[:index], bucket, *self._buckets[index + 1 :])
        table._size = size
        return table


def _key(item: tuple[str, object]) -> str:
    return item[0]


def _bucket(key: str) -> int:
    return crc32(key.encode()) % _BUCKETS

"""A bucket that passes every call to another one: the base of those that change one or two."""

from collections.abc import Callable, Iterable

from elasticd.checkpoint.storage.bucket import Bucket, Data, ListedObject

__all__ = ["ForwardingBucket"]


class ForwardingBucket:
    """A `Bucket` in front of another; a subclass overrides what it does differently."""

    def __init__(self, inner: Bucket) -> None:
        self._bucket = inner

    @property
    def url(self) -> str:
        return self._bucket.url

    def create(self, name: str, data: Data) -> bool:
        return self._bucket.create(name, data)

    def replace(self, name: str, data: Data) -> None:
        self._bucket.replace(name, data)

    def read(self, name: str, limit_bytes: int) -> bytes:
        return self._bucket.read(name, limit_bytes)

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        return self._bucket.read_into(name, start, place)

    def delete(self, names: Iterable[str]) -> None:
        self._bucket.delete(names)

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        return self._bucket.list(prefix, limit, keep)

"""A bucket in which something else happens just before a request, or the request fails."""

from collections.abc import Callable, Iterable

from elasticd.checkpoint.storage.bucket import Bucket, Data, ListedObject

__all__ = ["Crash", "Meddling"]

Before = Callable[[str, str], None]


class Crash(Exception):
    """This process ends here."""


class Meddling:
    """`Bucket` that calls `before(verb, name)` first; it may raise."""

    def __init__(self, inner: Bucket, before: Before) -> None:
        self.inner, self.before = inner, before

    @property
    def url(self) -> str:
        return self.inner.url

    def create(self, name: str, data: Data) -> bool:
        self.before("create", name)
        return self.inner.create(name, data)

    def replace(self, name: str, data: Data) -> None:
        self.before("replace", name)
        self.inner.replace(name, data)

    def read(self, name: str, limit_bytes: int) -> bytes:
        self.before("read", name)
        return self.inner.read(name, limit_bytes)

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        self.before("read_into", name)
        return self.inner.read_into(name, start, place)

    def delete(self, names: Iterable[str]) -> None:
        for name in list(names):
            self.before("delete", name)
            self.inner.delete([name])

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        self.before("list", prefix)
        return self.inner.list(prefix, limit, keep)

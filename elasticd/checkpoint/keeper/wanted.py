"""A bucket for one upload, that writes nothing more once the memory was given away.

Whoever asks before a part is read may be told yes and still read what the next snapshot wrote over
it. So the last word is before the fragment: without one nobody ever names the parts.
"""

from collections.abc import Callable, Iterable

from elasticd.checkpoint.bucket import Bucket, Data, Listed
from elasticd.checkpoint.upload import Abandoned

__all__ = ["Wanted"]


class Wanted:
    """`Bucket` whose `create` raises Abandoned as soon as `is_wanted` says no."""

    def __init__(self, inner: Bucket, is_wanted: Callable[[], bool]) -> None:
        self._inner, self._is_wanted = inner, is_wanted

    @property
    def url(self) -> str:
        return self._inner.url

    def create(self, name: str, data: Data) -> bool:
        if not self._is_wanted():
            raise Abandoned
        return self._inner.create(name, data)

    def replace(self, name: str, data: Data) -> None:
        self._inner.replace(name, data)

    def read(self, name: str, limit_bytes: int) -> bytes:
        return self._inner.read(name, limit_bytes)

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        return self._inner.read_into(name, start, place)

    def delete(self, names: Iterable[str]) -> None:
        self._inner.delete(names)

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[Listed]:
        return self._inner.list(prefix, limit, keep)

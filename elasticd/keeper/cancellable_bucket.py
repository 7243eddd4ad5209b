"""A bucket for one upload, that writes nothing more once the memory was given away.

Whoever asks before a part is read may be told yes and still read what the next snapshot wrote over
it. So the last word is before the fragment: without one nobody ever names the parts.
"""

from collections.abc import Callable

from elasticd.checkpoint.commit.upload import Abandoned
from elasticd.checkpoint.storage.bucket import Bucket, Data
from elasticd.checkpoint.storage.forwarding_bucket import ForwardingBucket

__all__ = ["Wanted"]


class Wanted(ForwardingBucket):
    """`Bucket` whose `create` raises Abandoned as soon as `is_wanted` says no."""

    def __init__(self, inner: Bucket, is_wanted: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._is_wanted = is_wanted

    def create(self, name: str, data: Data) -> bool:
        if not self._is_wanted():
            raise Abandoned
        return super().create(name, data)

"""A bucket for one upload that writes nothing more once the memory was given away.

A check before the keeper reads a part is not enough: the next snapshot may overwrite the part
during the read. So the last check is before the fragment, because parts that no fragment names do
not count.
"""

from collections.abc import Callable

from elasticd.checkpoint.commit.upload import Abandoned
from elasticd.checkpoint.storage.bucket import Bucket, Data
from elasticd.checkpoint.storage.forwarding_bucket import ForwardingBucket

__all__ = ["CancellableBucket"]


class CancellableBucket(ForwardingBucket):
    """A `Bucket` whose `create` raises Abandoned as soon as `is_wanted` returns False."""

    def __init__(self, inner: Bucket, is_wanted: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._is_wanted = is_wanted

    def create(self, name: str, data: Data) -> bool:
        """Create the object, unless nobody wants the upload any more.

        Raises: Abandoned: nobody wants the upload.
        """
        if not self._is_wanted():
            raise Abandoned
        return self._bucket.create(name, data)

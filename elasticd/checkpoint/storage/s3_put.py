"""Writes large objects to S3 by botocore itself, beside the driver that does everything else.

s3fs sends everything from one thread: it wants a copy of the bytes, its event loop makes another,
and it computes all signatures one after the other. For a part of 64 MiB that is most of the time.
Here each uploading thread signs and sends straight from shared memory. The client is made from the
driver's own options, so that both find the same service and the same credentials.
"""

import io
from typing import Any, Self

from elasticd.checkpoint.storage.bucket import Data

__all__ = ["LARGE_BYTES", "S3Put"]

LARGE_BYTES = 1 << 20
"""Smaller objects cost their round trip, whoever sends them."""


class S3Put:
    """Several threads may use it. Its errors are botocore's, as the driver's are."""

    def __init__(self, client: Any) -> None:
        self._client = client
        client.meta.events.register("before-send.s3.PutObject", _as_one)

    @classmethod
    def of(cls, fs: Any) -> Self | None:
        """Make a client like that of an s3fs file system; None if s3fs adds more to its requests.

        Raises: whatever botocore finds wrong with the options, as the driver does at its first
        request.
        """
        if fs.s3_additional_kwargs or fs.req_kw:
            return None
        import botocore.session
        from botocore import UNSIGNED
        from botocore.config import Config

        keys = {
            "aws_access_key_id": fs.key,
            "aws_secret_access_key": fs.secret,
            "aws_session_token": fs.token,
        }
        settings = dict(fs.config_kwargs)
        settings.pop("connector_args", None)  # Of aiohttp.
        if fs.anon:
            keys, settings = {}, {**settings, "signature_version": UNSIGNED}
        given = {"endpoint_url": fs.endpoint_url, "use_ssl": fs.use_ssl, **keys}
        given = {name: value for name, value in given.items() if value is not None}
        session = botocore.session.Session(**fs.kwargs)
        return cls(session.create_client("s3", config=Config(**settings),
                                         **{**given, **fs.client_kwargs}))  # fmt: skip

    def put(self, bucket: str, key: str, data: Data, *, is_exclusive: bool) -> None:
        """Write an object by one request."""
        more = {"IfNoneMatch": "*"} if is_exclusive else {}
        self._client.put_object(Bucket=bucket, Key=key, Body=_Body(data), **more)


class _Body(io.RawIOBase):
    """Memory as a file that can be read several times: for checksum, signature and request."""

    def __init__(self, data: Data) -> None:
        self._data, self._at = memoryview(data), 0

    def __len__(self) -> int:
        return len(self._data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        end = len(self._data) if size is None or size < 0 else self._at + size
        found = bytes(self._data[self._at : end])
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    @property
    def buffer(self) -> memoryview:
        return self._data


def _as_one(request: Any, **unused: object) -> None:
    """Send the memory itself: http.client reads a file 16 KiB at a time, each a copy and a call.

    Each attempt makes a new request, so it does not matter that this body cannot be rewound.
    """
    if isinstance(request.body, _Body):
        request.body = request.body.buffer

"""The file system of `gs://`, less what gcsfs does besides.

What gcsfs registers for the protocol asks by gRPC of which kind the bucket is, before every request
for as long as it gets no answer, and writes to some kinds without the condition that we need. Below
it is the one taken here. It tries each request six times, which no option of it changes: how often
to ask again is decided in one place (`retry`).
"""

from typing import Any

from gcsfs.core import GCSFileSystem

__all__ = ["Google"]

_once: Any = GCSFileSystem._request


class Google(GCSFileSystem):  # type: ignore[misc] # gcsfs has no types
    """Asks once."""

    _request = getattr(_once, "__wrapped__", _once)

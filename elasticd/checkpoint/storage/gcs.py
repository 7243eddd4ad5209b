"""The file system of `gs://`, without what gcsfs adds to it.

The class that gcsfs registers for the protocol asks by gRPC of which kind the bucket is, before
every request until it gets an answer, and writes to some kinds without the condition that we need.
This module takes the base class. The base class tries each request six times, which no option
changes, so this module overrides that: one place (`retry`) decides how often to ask again.
"""

from typing import Any

from gcsfs.core import GCSFileSystem

__all__ = ["GoogleFileSystem"]

_once: Any = GCSFileSystem._request


class GoogleFileSystem(GCSFileSystem):  # type: ignore[misc] # gcsfs has no types
    """Google's file system, asked once for each request."""

    _request = getattr(_once, "__wrapped__", _once)

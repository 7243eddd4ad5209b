"""Anything that fsspec reaches as a bucket: s3, gs, abfs, memory.

fsspec's retries and caches are switched off. One place (`retry`) decides how often and how long to
ask again, and a reader must not believe a cached answer about an object.
"""

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.memory import MemoryFileSystem

from elasticd.checkpoint.storage.bucket import Data, ListedObject, ObjectMissing
from elasticd.checkpoint.storage.driver_error import (
    is_past_the_end,
    meaning,
    no_bucket,
    wrong_options,
)
from elasticd.checkpoint.storage.s3_put import LARGE_BYTES, S3Put
from elasticd.errors import ElasticdError, EnvironmentProblem

__all__ = ["FsspecBucket"]

REQUEST_S = 30.0
"""A request that takes this long hangs; the time for its bytes at the least speed is added."""
CONNECT_S = 10.0
LEAST_BYTES_PER_S = 1_000_000.0
LISTED_BYTES = 400
"""How many bytes of an answer tell of one object in a list; a driver asks for 1000 at a time, and
for all of them in one call."""
ONE_PUT_BYTES = 5 << 30
"""The most that S3 takes in one request."""
ONE_AZURE_PUT_BYTES = 5000 << 20
"""The most that Azure takes in one request; a part is larger only if a tensor's share is."""

_MEMORY = threading.Lock()
"""fsspec's memory file system looks and writes in two steps; no other process sees it."""

_QUIET = logging.NullHandler()
"""The logger of a library that writes a page to stderr if it finds no credentials; the error says
it too. To see its messages, give the logger `azure` a handler."""

_S3_DEFAULTS: dict[str, Any] = {
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    "max_pool_connections": 64,
}
_PLAIN = {"request_checksum_calculation": "when_required"}
"""Otherwise botocore sends a body over https in chunks, with a checksum behind it."""
_UNCHECKED = {"response_checksum_validation": "when_required"}
"""No checksums of the driver: everything has one of ours, and some servers return that of the
object with a part of it."""


class FsspecBucket:
    """A `Bucket` over an fsspec file system."""

    def __init__(
        self, url: str, options: Mapping[str, Any], *, request_s: float = REQUEST_S
    ) -> None:
        """Prepare the file system without connecting to anything.

        Raises: EnvironmentProblem: the file system's own package is not installed. CallError: the
        file system does not take these options.
        """
        self._request_s = request_s
        self._url = url.rstrip("/")
        self._options = dict(options)
        self._put_lock = threading.Lock()
        self._connect(options)

    def send_plain(self) -> bool:
        """Send bodies without framing from now on; return False if the bucket does so already."""
        given = self._options.get("config_kwargs", {})
        if not self._is_s3 or not _knows_checksums() or given.items() >= _PLAIN.items():
            return False
        self._options["config_kwargs"] = {**given, **_PLAIN}
        self._connect(self._options)
        return True

    def _connect(self, options: Mapping[str, Any]) -> None:
        protocol = self._url.partition("://")[0]
        merged = _with_limits(protocol, options, self._request_s)
        with self._translated(""):
            try:
                self._fs, self._root = _opened(
                    self._url, **merged, use_listings_cache=False, skip_instance_cache=True
                )
            except (TypeError, ValueError) as exc:
                raise wrong_options(self._url, exc) from exc
        _ask_once(protocol, self._fs)
        write = self._fs._pipe_file if self._is_async else self._fs.pipe_file
        accepted = inspect.signature(write).parameters
        # One request for each object, so that none is left half uploaded and paid for.
        self._at_once: dict[str, Any] = (
            {"chunksize": ONE_PUT_BYTES}
            if protocol in _S3 + _GOOGLE and "chunksize" in accepted else {}
        )  # fmt: skip
        # A session that the user made is nothing that botocore's own could be made from.
        self._is_s3 = protocol in _S3 and getattr(self._fs, "session", None) is None
        self._put: S3Put | None = None
        self._exclusive: dict[str, Any] = (
            {"mode": "create"} if "mode" in accepted else
            {"overwrite": False} if "overwrite" in accepted else {}
        )  # fmt: skip

    @property
    def url(self) -> str:
        return self._url

    @property
    def _is_memory(self) -> bool:
        return isinstance(self._fs, MemoryFileSystem)

    @property
    def _is_async(self) -> bool:
        return isinstance(self._fs, AsyncFileSystem)

    def create(self, name: str, data: Data) -> bool:
        if not self._exclusive and self._exists(name):
            return False
        try:
            with self._translated(name), _MEMORY if self._is_memory else nullcontext():
                self._write(name, data, **self._exclusive)
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: Data) -> None:
        with self._translated(name):
            self._write(name, data)

    def read(self, name: str, limit_bytes: int) -> bytes:
        with self._translated(name):
            return self._range(name, 0, limit_bytes + 1)

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        with self._translated(name):
            data = self._range(name, start, start + max(1, len(place)))
        count = min(len(data), len(place))
        place[:count] = memoryview(data)[:count]
        return count

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                with self._translated(name):
                    self._call("rm_file", name)
            except ObjectMissing:
                continue

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[ListedObject]:
        found: list[ListedObject] = []
        try:
            with self._translated(prefix):
                nbytes = limit * LISTED_BYTES
                every: dict[str, Any] = self._call("find", prefix, detail=True, nbytes=nbytes)
        except ObjectMissing:
            return []
        for path, seen in every.items():
            name = path[len(self._root) :].lstrip("/")
            if keep(name) and len(found) < limit:
                found.append(
                    ListedObject(
                        name=name,
                        size=int(seen.get("size") or 0),
                        modified_unix_s=_unix_s(seen),
                    )
                )
        return found

    def _write(self, name: str, data: Data, **more: Any) -> None:
        try:
            self._send(name, data, **more)
        except FileNotFoundError as exc:
            # Some drivers drop the service's own word for it.
            raise no_bucket(f"{self._url}/{name}", exc) from exc

    def _send(self, name: str, data: Data, **more: Any) -> None:
        put = self._large_put() if len(data) >= LARGE_BYTES else None
        if put is not None:
            bucket, _, folder = self._root.partition("/")
            key = f"{folder}/{name}" if folder else name
            put.put(bucket, key, data, is_exclusive=bool(more))
            return
        self._call("pipe_file", name, _body(data), nbytes=len(data), **self._at_once, **more)

    def _large_put(self) -> S3Put | None:
        """Return the `S3Put` for large objects, if there is one; it is made at the first use."""
        with self._put_lock:
            if self._is_s3 and self._put is None:
                self._put = S3Put.of(self._fs)
                self._is_s3 = self._put is not None
            return self._put

    def _range(self, name: str, start: int, end: int) -> bytes:
        try:
            data: bytes = self._call("cat_file", name, start=start, end=end, nbytes=end - start)
        except Exception as exc:
            if is_past_the_end(exc):
                return b""  # The object ends before that.
            raise
        return data[: end - start]

    def _exists(self, name: str) -> bool:
        try:
            self.read(name, 0)
        except ObjectMissing:
            return False
        return True

    def _call(self, verb: str, name: str, *args: Any, nbytes: int = 0, **more: Any) -> Any:
        path = f"{self._root}/{name}" if name else self._root
        if not self._is_async:
            return getattr(self._fs, verb)(path, *args, **more)
        limit_s = self._request_s + nbytes / LEAST_BYTES_PER_S
        return sync(
            self._fs.loop, getattr(self._fs, f"_{verb}"), path, *args, timeout=limit_s, **more
        )

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        where = f"{self._url}/{name}" if name else self._url
        try:
            yield
        except ElasticdError:
            raise
        except ImportError as exc:
            protocol = self._url.partition("://")[0]
            package = _PACKAGES.get(protocol, f"the fsspec driver of {protocol}://")
            raise EnvironmentProblem(
                f"{self._url} needs {package}, which is not installed: pip install {package}."
            ) from exc
        except Exception as exc:
            raise meaning(exc, where) from exc


_S3 = ("s3", "s3a")
_GOOGLE = ("gs", "gcs")
_AZURE = ("abfs", "abfss", "az")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs",
             "abfss": "adlfs", "az": "adlfs"}  # fmt: skip


def _with_limits(protocol: str, options: Mapping[str, Any], request_s: float) -> dict[str, Any]:
    """Set in the driver's options how long connecting may take, and how long a silence may last.

    The time limit for `read` alone does not stop a hang.
    """
    connect_s = min(CONNECT_S, request_s)
    if protocol in _S3:
        limits = {"connect_timeout": connect_s, "read_timeout": request_s}
        more = _UNCHECKED if _knows_checksums() else {}
        settings = {**_S3_DEFAULTS, **more, **limits, **options.get("config_kwargs", {})}
        return {**options, "config_kwargs": settings}
    if protocol in _AZURE:
        return {"connection_timeout": connect_s, "read_timeout": request_s, **options}
    return dict(options)


def _knows_checksums() -> bool:
    """Return whether botocore adds checksums by itself and has options for them (since 1.36)."""
    try:
        from botocore.config import Config
    except ImportError:
        return False
    return "request_checksum_calculation" in Config.OPTION_DEFAULTS


def _opened(url: str, **options: Any) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    if url.partition("://")[0] not in _GOOGLE:
        found: tuple[Any, str] = fsspec.url_to_fs(url, **options)
        return found
    from elasticd.checkpoint.storage.gcs import GoogleFileSystem  # costs the import of a driver

    return GoogleFileSystem(**options), GoogleFileSystem._strip_protocol(url)


def _ask_once(protocol: str, fs: Any) -> None:
    """Switch off the driver's own retries, and uploads in several requests."""
    if hasattr(fs, "retries"):
        fs.retries = 1
    if protocol in _AZURE:
        logging.getLogger("azure").addHandler(_QUIET)
    # adlfs has an option for neither: of its own accord Azure's client waits 15 s between tries,
    # more than a request may take, and sends what is larger than 64 MiB in blocks.
    settings = getattr(getattr(fs, "service_client", None), "_config", None)
    if protocol in _AZURE and settings is not None:
        settings.retry_policy.total_retries = 0
        settings.max_single_put_size = ONE_AZURE_PUT_BYTES


def _body(data: Data) -> bytes:
    """Return a body for the drivers: a copy of shared memory that lives as long as the request."""
    return data if isinstance(data, bytes) else bytes(data)


def _unix_s(seen: Mapping[str, Any]) -> float:
    for key in ("LastModified", "last_modified", "created", "mtime", "updated"):
        value = seen.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0

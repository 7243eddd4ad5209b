"""Anything that fsspec reaches as a bucket: s3, gs, abfs, memory.

Its retries and caches are switched off: how often to ask again, and for how long, is decided in one
place (`retry`), and a cached answer about an object is exactly what a reader must not believe.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.exceptions import FSTimeoutError

from elasticd.checkpoint.bucket import Data, Listed, Missing, Throttled
from elasticd.errors import ElasticdError, EnvironmentProblem, Refused, Unavailable

__all__ = ["Remote"]

REQUEST_S = 30.0
"""A request that takes longer hangs, on top of its bytes at the least speed."""
LEAST_BYTES_PER_S = 1_000_000.0

_TAKEN = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_THROTTLED = {"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "429", "503",
              "RequestLimitExceeded", "ServiceUnavailable"}  # fmt: skip
_S3_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "read_timeout": 30,
    "retries": {"max_attempts": 1, "mode": "standard"},
    "max_pool_connections": 64,
}


class Remote:
    """`Bucket` over an fsspec file system."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Connects to nothing yet.

        Raises:
            EnvironmentProblem: the file system's own package is not installed.
        """
        self._url = url.rstrip("/")
        protocol = url.partition("://")[0]
        merged = dict(options)
        if protocol in ("s3", "s3a"):
            merged["config_kwargs"] = {**_S3_DEFAULTS, **merged.get("config_kwargs", {})}
        with self._translated(""):
            self._fs, self._root = fsspec.url_to_fs(
                self._url, **merged, use_listings_cache=False, skip_instance_cache=True
            )
        if hasattr(self._fs, "retries"):
            self._fs.retries = 1
        write = self._fs._pipe_file if self._is_async else self._fs.pipe_file
        accepted = inspect.signature(write).parameters
        self._exclusive: dict[str, Any] = (
            {"mode": "create"} if "mode" in accepted else
            {"overwrite": False} if "overwrite" in accepted else {}
        )  # fmt: skip

    @property
    def url(self) -> str:
        return self._url

    @property
    def _is_async(self) -> bool:
        return isinstance(self._fs, AsyncFileSystem)

    def create(self, name: str, data: Data) -> bool:
        if not self._exclusive and self._exists(name):
            return False
        try:
            with self._translated(name):
                self._call("pipe_file", name, _body(data), nbytes=len(data), **self._exclusive)
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: Data) -> None:
        with self._translated(name):
            self._call("pipe_file", name, _body(data), nbytes=len(data))

    def read(self, name: str, limit_bytes: int) -> bytes:
        with self._translated(name):
            data: bytes = self._call("cat_file", name, start=0, end=limit_bytes + 1)
        return data

    def read_into(self, name: str, start: int, place: memoryview) -> int:
        with self._translated(name):
            data: bytes = self._call(
                "cat_file", name, start=start, end=start + len(place), nbytes=len(place)
            )
        count = min(len(data), len(place))
        place[:count] = memoryview(data)[:count]
        return count

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                with self._translated(name):
                    self._call("rm_file", name)
            except Missing:
                continue

    def list(self, prefix: str, limit: int, keep: Callable[[str], bool]) -> list[Listed]:
        found: list[Listed] = []
        try:
            with self._translated(prefix):
                every: dict[str, Any] = self._call("find", prefix, detail=True)
        except Missing:
            return []
        for path, seen in every.items():
            name = path[len(self._root) :].lstrip("/")
            if keep(name) and len(found) < limit:
                found.append(
                    Listed(
                        name=name,
                        size=int(seen.get("size") or 0),
                        modified_unix_s=_unix_s(seen),
                    )
                )
        return found

    def _exists(self, name: str) -> bool:
        try:
            self.read(name, 0)
        except Missing:
            return False
        return True

    def _call(self, verb: str, name: str, *args: Any, nbytes: int = 0, **more: Any) -> Any:
        path = f"{self._root}/{name}" if name else self._root
        if not self._is_async:
            return getattr(self._fs, verb)(path, *args, **more)
        limit_s = REQUEST_S + nbytes / LEAST_BYTES_PER_S
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
            raise _meaning(exc, where) from exc


_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs",
             "abfss": "adlfs", "az": "adlfs"}  # fmt: skip


def _body(data: Data) -> bytes:
    """What the drivers take; a copy of shared memory, which lives as long as the request."""
    return data if isinstance(data, bytes) else bytes(data)


def _meaning(exc: Exception, where: str) -> Exception:
    """Translate a driver's error; by the service's own code where it left one."""
    response = _response(exc)
    error = response.get("Error", {})
    code = str(error.get("Code", ""))
    meta = response.get("ResponseMetadata", {})
    status = meta.get("HTTPStatusCode", 0)
    if isinstance(exc, FileExistsError) or code in _TAKEN or status in (409, 412):
        return FileExistsError(where)
    if isinstance(exc, FSTimeoutError | TimeoutError):
        return Unavailable(f"{where} did not answer in time.")
    why = " ".join(str(exc).split())[:300] or type(exc).__name__
    if isinstance(exc, FileNotFoundError):
        return Missing(f"There is no {where} ({why}).")
    if (
        isinstance(exc, PermissionError)
        or status in (401, 403)
        or "Credentials" in type(exc).__name__
    ):
        return Refused(
            f"{where} refuses access ({why}): give this process credentials that may read and "
            "write there."
        )
    if code in _THROTTLED or status in (429, 503):
        return Throttled(f"{where} is overloaded ({why}).", after_s=_after_s(meta))
    return Unavailable(f"{where} cannot be reached ({why}).")


def _response(exc: BaseException | None) -> Mapping[str, Any]:
    depth = 0
    while exc is not None and depth < 5:
        found = getattr(exc, "response", None)
        if isinstance(found, dict):
            return found
        exc, depth = exc.__cause__ or exc.__context__, depth + 1
    return {}


def _after_s(meta: Mapping[str, Any]) -> float:
    said = str(meta.get("HTTPHeaders", {}).get("retry-after", ""))
    return min(float(said), 300.0) if said.isdigit() else 0.0


def _unix_s(seen: Mapping[str, Any]) -> float:
    for key in ("LastModified", "last_modified", "created", "mtime", "updated"):
        value = seen.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0

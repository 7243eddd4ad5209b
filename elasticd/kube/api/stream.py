"""The lines of a watch: each is one JSON document, which the network may split anywhere.

Pure: bytes in, events out. The size of a line is limited. Text after the last newline of a
connection is no event: the next connection sends it again, from the version before.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.errors import ElasticdError, Unavailable
from elasticd.kube.api.document import document, levelled
from elasticd.kube.api.failure import failure
from elasticd.kube.api.port import ELASTIC_JOBS, Changed, Object, ResourceKind, name_of
from elasticd.kube.resource.spec import digests

__all__ = ["WatchLines", "WatchProgress", "trimmed"]

LINE_LIMIT_BYTES = 16 << 20
"""The size limit of a line: an object has at most 1.5 MB in etcd, and its JSON is a little
larger."""


@dataclass(frozen=True, slots=True)
class WatchProgress:
    """The version up to which all changes were delivered, and the last change, if any."""

    version: str
    change: Changed | None = None


class WatchLines:
    """The parser for the lines of one connection."""

    def __init__(self, kind: ResourceKind, host: str) -> None:
        self._kind, self._host = kind, host
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[WatchProgress]:
        """Yield the events of the lines that are complete.

        Raises: Gone: the server does not know the changes since the watch's version any more.
        Unavailable: a line is no event, or the server reports an error.
        """
        self._rest += data
        while (end := self._rest.find(b"\n")) >= 0:
            line = bytes(self._rest[:end])
            del self._rest[: end + 1]
            if line.strip():
                yield self._event(line)
        if len(self._rest) > LINE_LIMIT_BYTES:
            raise Unavailable(
                f"The API server at {self._host} sent a line of more than {LINE_LIMIT_BYTES} bytes."
            )

    def _event(self, line: bytes) -> WatchProgress:
        try:
            event = document(line)
            kind, found = event["type"], event["object"]
            if kind == "ERROR":
                raise _error(found, self._host, self._kind)
            version = str(found["metadata"]["resourceVersion"])
            if kind == "BOOKMARK":
                return WatchProgress(version)
            item = trimmed(self._kind, found)
            change = Changed(
                kind=self._kind, name=name_of(item), item=None if kind == "DELETED" else item
            )
            return WatchProgress(version, change)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise Unavailable(
                f"The API server at {self._host} sent a line that is no event: {line[:80]!r}."
            ) from exc


def trimmed(kind: ResourceKind, found: dict[str, Any]) -> Object:
    """Remove, in place, the fields that elasticd does not read and that are most of an object."""
    found["apiVersion"], found["kind"] = kind.api_version, kind.kind  # A list's objects lack both.
    if isinstance(metadata := found.get("metadata"), dict):
        metadata.pop("managedFields", None)
    if kind.kind == "Node" and isinstance(status := found.get("status"), dict):
        status.pop("images", None)
    if kind == ELASTIC_JOBS:
        levelled(found)  # In this kind alone, users may nest objects to any depth.
        _digest_files(found)
    return found


def _digest_files(found: dict[str, Any]) -> None:
    """Replace the files of a submitted job, of which nobody needs more than whether they change."""
    spec, status = found.get("spec"), found.get("status")
    is_submitted = isinstance(status, dict) and bool(status.get("job"))
    if is_submitted and isinstance(spec, dict) and isinstance(files := spec.get("files"), dict):
        spec["files"] = dict(digests(files))


def _error(status: Mapping[str, Any], host: str, kind: ResourceKind) -> ElasticdError:
    code = int(status.get("code") or 500)
    body = json.dumps(status).encode()
    return failure(code, body, {}, host=host, what=f"watch {kind.resource}")

"""Translates ranges of keys and their contents between elasticd's types and etcd's."""

from typing import Any

from elasticd.store.api import KeyRange, KeyValue, WatchSnapshot
from elasticd.store.etcd.channel import rpc_pb2

__all__ = ["bounds", "item", "range_request", "snapshot"]

# As a key: before all others. As an end: after all others.
_EDGE = b"\0"


def bounds(key: str, *, is_prefix: bool) -> tuple[bytes, bytes]:
    """Return etcd's key and range_end; an empty end means that one key."""
    first = key.encode()
    if not is_prefix:
        return first, b""
    return first or _EDGE, _prefix_end(first)


def range_request(
    range: KeyRange, *, limit: int = 0, is_keys_only: bool = False, is_oldest_first: bool = False
) -> Any:
    """Ask for the range, linearizably, in the order of the keys or of their creation."""
    first, end = bounds(range.key, is_prefix=range.is_prefix)
    request = rpc_pb2.RangeRequest(key=first, range_end=end, limit=limit, keys_only=is_keys_only)
    if is_oldest_first:
        request.sort_order = rpc_pb2.RangeRequest.ASCEND
        request.sort_target = rpc_pb2.RangeRequest.CREATE
    return request


def snapshot(range: KeyRange, answer: Any) -> WatchSnapshot:
    return WatchSnapshot(
        range=range,
        revision=int(answer.header.revision),
        items=tuple(item(kv) for kv in answer.kvs),
    )


def item(kv: Any) -> KeyValue:
    return KeyValue(
        key=kv.key.decode("utf-8", "replace"),
        value=kv.value,
        mod_revision=kv.mod_revision,
        create_revision=kv.create_revision,
    )


def _prefix_end(prefix: bytes) -> bytes:
    """Return the first key after all that begin with the prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else _EDGE

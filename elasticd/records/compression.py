"""The bytes of a record as they stand in etcd: JSON that people can read, or, if long, compressed.

etcd refuses a request above 1.5 MiB, and keeps every revision of a key until it is compacted. The
world of a large job is the only record that comes near: some 370 bytes for each node of eight
workers, of which compression leaves 48. Short records stay readable, for people and for versions of
elasticd that know no compression; those refuse records of over a megabyte in any case.
"""

import zlib

from elasticd.errors import NotSupported

__all__ = ["PLAIN_LIMIT_BYTES", "RECORD_LIMIT_BYTES", "compressed", "decompressed"]

RECORD_LIMIT_BYTES = 1_000_000
"""The limit of a stored record: below etcd's default request limit of 1.5 MiB, with room for a
transaction's other records."""
PLAIN_LIMIT_BYTES = 64_000_000
"""The limit of the JSON: a hundred times the world of a thousand nodes, which a reader has memory
for."""

_LEVEL = 6
"""The compression level. For 10,000 nodes of 8 workers it takes 60 ms and leaves 0.48 MB; level 1
takes 15 ms and leaves a third more."""
_FIRST_BYTE = b"\x78"
"""The first byte of what zlib writes with its default window; JSON begins with another one."""


def compressed(plain: bytes, what: str) -> bytes:
    """Return what to store for these bytes of JSON.

    Raises: NotSupported: the bytes are too many even when compressed; `what` names the record.
    """
    value = plain if len(plain) <= RECORD_LIMIT_BYTES else zlib.compress(plain, _LEVEL)
    if len(value) > RECORD_LIMIT_BYTES or len(plain) > PLAIN_LIMIT_BYTES:
        raise NotSupported(
            f"The {what} record of {len(value)} bytes is over the limit of {RECORD_LIMIT_BYTES} "
            "bytes, which etcd sets: use fewer nodes, or shorter arguments and variables."
        )
    return value


def decompressed(value: bytes, what: str) -> bytes:
    """Return the JSON of a stored record.

    Raises: NotSupported: the record is too long, or damaged.
    """
    if len(value) > RECORD_LIMIT_BYTES:
        raise NotSupported(f"The {what} record of {len(value)} bytes is over the limit.")
    if not value.startswith(_FIRST_BYTE):
        return value
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(value, PLAIN_LIMIT_BYTES)
    except zlib.error as exc:
        raise NotSupported(f"The {what} record in etcd is damaged: {exc}.") from exc
    if not reader.eof:
        raise NotSupported(f"The {what} record in etcd is cut short, or over the limit.")
    return plain

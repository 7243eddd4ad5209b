"""The frame of one record in an event file: its length, and checksums of both. Pure.

The frame has the length (8 bytes, little endian), the masked CRC-32C of the length (4 bytes), the
data, and the masked CRC-32C of the data (4 bytes). This is the TFRecord format, which TensorBoard
reads; it is for files, and is independent of `elasticd.net.framing`.
"""

import struct

__all__ = ["crc32c", "framed"]

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


def _table() -> tuple[int, ...]:
    found = []
    for number in range(256):
        crc = number
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of the data, as in SSE 4.2 and iSCSI."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF_FFFF


def framed(data: bytes) -> bytes:
    """Return the record that contains this data."""
    length = struct.pack("<Q", len(data))
    return b"".join((length, _masked(length), data, _masked(data)))


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFF_FFFF)

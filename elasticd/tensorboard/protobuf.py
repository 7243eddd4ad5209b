"""The few forms of protobuf's wire format that an event needs. Pure.

Rejected: generated classes, which need the schema files of another project, and the version of
protobuf for which they were generated.
"""

import struct

__all__ = ["double", "field_bytes", "float32", "varint", "varint_field"]

_VARINT, _64_BITS, _BYTES, _32_BITS = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Encode a number of up to 64 bits; a negative one takes ten bytes."""
    rest = value & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def varint_field(number: int, value: int) -> bytes:
    return varint(number << 3 | _VARINT) + varint(value)


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | _64_BITS) + struct.pack("<d", value)


def float32(number: int, value: float) -> bytes:
    """Return a 32-bit float; a value too large for it becomes infinite."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return varint(number << 3 | _32_BITS) + packed


def field_bytes(number: int, value: bytes) -> bytes:
    """Return a field with a message, a text in UTF-8, or bytes."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value

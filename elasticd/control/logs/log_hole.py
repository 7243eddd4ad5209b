"""Finds the part of a log whose disk space was freed (`--log-max`) with a few reads. Pure.

The hole reads as zeros. A log has at most one hole, which begins at a multiple of the block size
and consists of whole blocks. If a script prints 4,096 zero bytes in a row, they look like a hole.
"""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["BLOCK_BYTES", "Gap", "find_gap"]

BLOCK_BYTES = 4096
_ZEROS = bytes(BLOCK_BYTES)

Read = Callable[[int, int], bytes]
"""Returns the bytes from an offset on, as many as asked for or fewer."""


class Gap(NamedTuple):
    """The begin and the end of a hole, as offsets."""

    begin: int
    end: int


def find_gap(read: Read, data: bytes, offset: int, size: int) -> Gap | None:
    """Return the hole that begins in `data`, which was read at `offset` of a log of `size` bytes.

    It returns None if there is no hole. It finds the end by bisection: a few small reads, however
    long the hole is.
    """
    # The offset is rounded up: a hole in the middle of the data begins at a border of blocks.
    first = -offset % BLOCK_BYTES
    begin = next(
        (
            at
            for at in range(first, len(data) - BLOCK_BYTES + 1, BLOCK_BYTES)
            if data[at] == 0 and data.startswith(_ZEROS, at)
        ),
        None,
    )
    if begin is None:
        return None
    # A reader whose offset is inside the hole begins in the middle of a block.
    start = offset + len(data[:begin].rstrip(b"\0"))
    low, high = start // BLOCK_BYTES, -(-size // BLOCK_BYTES)
    while high - low > 1:
        middle = (low + high) // 2
        if read(middle * BLOCK_BYTES, BLOCK_BYTES) == _ZEROS:
            low = middle
        else:
            high = middle
    return Gap(start, min(size, high * BLOCK_BYTES))

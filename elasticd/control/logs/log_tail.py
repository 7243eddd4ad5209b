"""Finds where the last lines of a log begin, from its end; the log may be on another node."""

from collections.abc import Callable

__all__ = ["tail_offset"]

BLOCK_BYTES = 1 << 16

Read = Callable[[int, int], bytes]
"""Returns the bytes from an offset on, at most as many as asked for; none after an error."""


def tail_offset(read: Read, size: int, lines: int) -> int:
    """Return the offset of the last `lines` lines of `size` bytes; 0 if there are not more lines.

    Text after the last line end is a line, too. If a read fails, the function returns the offset
    that it has reached.
    """
    if lines <= 0:
        return size
    end, wanted = size, lines
    while end > 0:
        begin = max(0, end - BLOCK_BYTES)
        block = read(begin, end - begin)
        if len(block) < end - begin:
            return end
        at = len(block)
        if end == size and block.endswith(b"\n"):
            at -= 1  # This line end ends the last line.
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            wanted -= 1
            if wanted == 0:
                return begin + at + 1
        end = begin
    return 0

"""Checksums of blocks: XXH3, which is as fast as memory.

The sums protect from accidents, not from attackers.
"""

from collections.abc import Iterable, Iterator

import xxhash

__all__ = [
    "BLOCK_BYTES",
    "block_sum",
    "block_sums",
    "blocks",
    "number_sum",
    "sum_of_sums",
    "text_sum",
]

BLOCK_BYTES = 4 << 20
"""The bytes that one checksum covers, and so the least that is read: much compared with the cost of
a request."""


def block_sum(block: memoryview) -> str:
    """Return the XXH3-64 of one block as 16 hexadecimal digits; other threads run meanwhile."""
    return xxhash.xxh3_64_hexdigest(block)


def blocks(part: memoryview) -> Iterator[memoryview]:
    """Iterate over the blocks of a part: 4 MiB each, the last one may be shorter."""
    for start in range(0, len(part), BLOCK_BYTES):
        yield part[start : start + BLOCK_BYTES]


def block_sums(part: memoryview) -> tuple[str, ...]:
    """Return the sum of each block of a part."""
    return tuple(block_sum(block) for block in blocks(part))


def text_sum(text: bytes) -> str:
    """Return the XXH3-128 of a manifest, or of any text."""
    return xxhash.xxh3_128_hexdigest(text)


def sum_of_sums(parts: Iterable[Iterable[str]]) -> str:
    """Return one sum for a state with these block sums, part by part."""
    return text_sum("".join(each for sums in parts for each in sums).encode())


def number_sum(data: memoryview) -> int:
    """Return the XXH3-64 of any bytes without its last bit, which fits a signed 64-bit number."""
    return xxhash.xxh3_64_intdigest(data) >> 1

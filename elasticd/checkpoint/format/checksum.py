"""Checksums of blocks: XXH3, which keeps up with memory; against accidents, not attackers."""

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
"""What one checksum covers, and so the least that is read: large beside a request's cost."""


def block_sum(block: memoryview) -> str:
    """XXH3-64 of one block, 16 hexadecimal digits; lets other threads run meanwhile."""
    return xxhash.xxh3_64_hexdigest(block)


def blocks(part: memoryview) -> Iterator[memoryview]:
    """Iterate over the blocks of a part: 4 MiB each, the last of what is left."""
    for start in range(0, len(part), BLOCK_BYTES):
        yield part[start : start + BLOCK_BYTES]


def block_sums(part: memoryview) -> tuple[str, ...]:
    """The sum of each block of a part."""
    return tuple(block_sum(block) for block in blocks(part))


def text_sum(text: bytes) -> str:
    """XXH3-128 of a manifest, or of any text."""
    return xxhash.xxh3_128_hexdigest(text)


def sum_of_sums(parts: Iterable[Iterable[str]]) -> str:
    """One sum for what has these sums of blocks, part by part."""
    return text_sum("".join(each for sums in parts for each in sums).encode())


def number_sum(data: memoryview) -> int:
    """XXH3-64 of any bytes without its last bit: what a signed number of 64 bits holds."""
    return xxhash.xxh3_64_intdigest(data) >> 1
